"""How fast gym_ray is against other collectors on the same work. Start with `python -m benchmarks.collect`."""
