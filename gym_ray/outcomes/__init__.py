"""What came back from an environment server, and what it means."""
