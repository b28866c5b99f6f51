"""`gym-ray config`: the settings that a run would have and where each comes from, or what can be set."""

import json
from typing import Annotated

import typer

from gym_ray.cli.options import ConfigFiles, JsonOutput, Overrides


def config(
    overrides: Overrides = None,
    files: ConfigFiles = None,
    resolve: Annotated[
        bool, typer.Option("--resolve", help="Print every setting, its value and where it comes from (the default).")
    ] = False,
    schema: Annotated[bool, typer.Option("--schema", help="Print the JSON schema of all settings.")] = False,
    json_output: JsonOutput = False,
) -> None:
    """Show the effective settings of a run, from files, GYM_RAY_ variables and overrides, and where each comes from."""
    if schema and resolve:
        raise typer.BadParameter("choose one", param_hint="--resolve, --schema")
    if schema:
        from gym_ray.config import RolloutCollectionConfig  # noqa: PLC0415 - `--help` shall not pay for it

        typer.echo(json.dumps(RolloutCollectionConfig.model_json_schema(), indent=2))
        return
    from gym_ray.config_files.loading import load_config  # noqa: PLC0415
    from gym_ray.deployment.secrets import mask_secrets  # noqa: PLC0415
    from gym_ray.observe.printable import printable  # noqa: PLC0415

    settings = list(load_config(files or (), overrides or ()).settings())
    # A value under a key such as `api_key` is masked, and so is what looks like a token inside of a text
    shown = [(each.path, _masked(each.path, mask_secrets(each.value), each.value), each.origin) for each in settings]
    if json_output:
        rows = [{"setting": path, "value": value, "origin": origin} for path, value, origin in shown]
        typer.echo(json.dumps(rows, indent=2))
        return
    width = max(len(path) for path, _, _ in shown)
    for path, value, origin in shown:
        typer.echo(f"{path:<{width}}  {printable(json.dumps(value))}  ({printable(origin)})")


def _masked(path: str, masked: object, value: object) -> object:
    from gym_ray.deployment.secrets import MASK, is_secret_key  # noqa: PLC0415

    return MASK if value is not None and is_secret_key(path.rsplit(".", 1)[-1]) else masked
