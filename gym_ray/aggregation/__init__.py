"""Has every environment server aggregate its own results."""
