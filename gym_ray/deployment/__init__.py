"""What a deployment offers: its merged config, its servers, and who fronts whom."""
