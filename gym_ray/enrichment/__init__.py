"""Merges what model servers captured, and what agents observed, into the record of a rollout."""
