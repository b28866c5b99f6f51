"""Driver and shards: plain classes, and the only modules that import ray to run them as actors."""
