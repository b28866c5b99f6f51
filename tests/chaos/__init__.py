"""Runs that are killed at random moments and continued until they are done."""
