"""A small deployment that really serves: a head server, two environments with tasks, and a scripted model.

It stands in for a NeMo Gym deployment in a demonstration, in tests and in benchmarks: same wire, no GPU, and the same
rewards in every run. `gym-ray serve-example` and `gym-ray run --example` start it.
"""

from gym_ray.example.background import example_in_thread
from gym_ray.example.deployment import ExampleDeployment, example_deployment, serve_forever
from gym_ray.example.execution_ledger import LedgerOptions
from gym_ray.example.flag_text import profile_of_texts
from gym_ray.example.profile import Fault, FaultKind, LatencyRange, Limits, Profile
from gym_ray.example.rows import ROW_FILES, example_rows

__all__ = [
    "ROW_FILES",
    "ExampleDeployment",
    "Fault",
    "FaultKind",
    "LatencyRange",
    "LedgerOptions",
    "Limits",
    "Profile",
    "example_deployment",
    "example_in_thread",
    "example_rows",
    "profile_of_texts",
    "serve_forever",
]
