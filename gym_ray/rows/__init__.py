"""Input rows: JSONL and other files, or what a program hands over, read as a stream of JSON texts."""
