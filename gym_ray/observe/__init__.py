"""What people see of a run: progress, latencies, the report at its end."""
