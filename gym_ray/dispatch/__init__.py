"""Decides when each rollout starts, and keeps account of every one of them."""
