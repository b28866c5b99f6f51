"""The `gym-ray` program: its verbs, and how every error ends."""

import json
import logging
import sys
from typing import Annotated

import typer

from gym_ray.cli.aggregate import aggregate
from gym_ray.cli.config import config
from gym_ray.cli.control import attach, scale, stop
from gym_ray.cli.exit_codes import EXIT_CODES
from gym_ray.cli.extend import extend
from gym_ray.cli.folders import export, merge, recover, report, status, verify
from gym_ray.cli.output import MessageHandler, tell
from gym_ray.cli.plan import plan
from gym_ray.cli.run import run
from gym_ray.cli.serve_example import serve_example
from gym_ray.errors import (
    ConfigError,
    DeploymentUnreachableError,
    GymRayError,
    InputError,
    RoutingError,
    RunFolderError,
)
from gym_ray.version import __version__

USAGE, FAULT, INTERRUPTED = 2, 1, 130

logger = logging.getLogger("gym_ray.cli")

app = typer.Typer(
    name="gym-ray",
    help="Distributed rollouts on Ray for NeMo Gym environment servers.",
    context_settings={"help_option_names": ["-h", "--help"]},
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.command(epilog=EXIT_CODES)(run)
app.command(epilog=EXIT_CODES)(extend)
app.command()(plan)
app.command()(report)
app.command()(status)
app.command()(attach)
app.command()(stop)
app.command()(scale)
app.command()(verify)
app.command()(recover)
app.command()(merge)
app.command()(export)
app.command()(aggregate)
app.command()(config)
app.command("serve-example")(serve_example)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"gym-ray {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Options before the verb."""


def main() -> None:
    """Run the program; every error of ours is one message and an exit code, never a traceback."""
    logging.basicConfig(handlers=[MessageHandler()], level=logging.WARNING)
    try:
        app()
    except (ConfigError, InputError, RoutingError, DeploymentUnreachableError, RunFolderError) as error:
        sys.exit(_told(error, USAGE))
    except GymRayError as error:
        sys.exit(_told(error, FAULT))
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)  # before a run could take the signal for itself
    except OSError as error:
        if isinstance(error, BrokenPipeError):
            sys.exit(FAULT)  # whoever read our output has gone
        logger.debug("the error in full", exc_info=error)
        tell(f"{error.filename or 'a file'}: {error.strerror or error}")
        sys.exit(FAULT)


def _told(error: GymRayError, code: int) -> int:
    logger.debug("the error in full", exc_info=error)
    tell(str(error))
    if "--json" in sys.argv:  # whoever parses stdout finds an object there in any case
        typer.echo(json.dumps({"error": str(error), "exit_code": code}))
    return code
