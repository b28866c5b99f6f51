"""`gym-ray serve-example`: the bundled deployment as a server of its own."""

import asyncio
import contextlib
import signal
from typing import TYPE_CHECKING, Annotated

import typer

from gym_ray.cli.options import Fail, Latency, Tail

if TYPE_CHECKING:
    from gym_ray.example import ExampleDeployment, Profile


def serve_example(
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port of the head server; 0 takes a free one.")] = 11000,
    latency: Latency = "0",
    tail: Tail = "0",
    fail: Fail = "",
    seed: Annotated[int, typer.Option(help="Seed of latencies and faults.")] = 0,
) -> None:
    """Serve two example environments with tasks and a scripted model until interrupted."""
    from gym_ray import event_loop  # noqa: PLC0415
    from gym_ray.example import profile_of_texts  # noqa: PLC0415 - `--help` shall not pay for it

    profile = profile_of_texts(latency, tail, fail, seed)
    event_loop.run(_serve(host, port, profile))


async def _serve(host: str, port: int, profile: "Profile") -> None:
    from gym_ray.example import ROW_FILES, example_rows, serve_forever  # noqa: PLC0415

    def ready(deployment: "ExampleDeployment") -> None:
        typer.echo(f"head server: {deployment.head_url}")
        for name in ROW_FILES:
            typer.echo(f"rows: {example_rows(name)}")
        typer.echo(f"run them: gym-ray run -i ROWS -o out/rollouts.jsonl --head {deployment.head_address}")

    serving = asyncio.ensure_future(serve_forever(host, port, profile, on_ready=ready))
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, serving.cancel)
    with contextlib.suppress(asyncio.CancelledError):
        await serving
