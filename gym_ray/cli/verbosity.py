"""How much the log says."""

import logging


def set_verbosity(verbose: bool) -> None:
    """Show our own decisions, or only what a person should know."""
    logging.getLogger("gym_ray").setLevel(logging.DEBUG if verbose else logging.WARNING)
