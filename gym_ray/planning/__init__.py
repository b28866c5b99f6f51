"""Everything that decides what runs where, before the first request."""
