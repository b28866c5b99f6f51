"""What `/aggregate_metrics` computes: pure arithmetic over stored records, without numpy.

Source: protocol §9. A record is a decoded JSON object; nothing here keeps or changes one.
"""

from gym_ray.example.metrics.aggregate import aggregate_metrics

__all__ = ["aggregate_metrics"]
