"""What was typed becomes settings, and messages name only flags that exist."""

import pytest
import typer
from typer.main import get_command

from gym_ray.cli.main import app
from gym_ray.cli.settings import load_settings
from gym_ray.config_files.fields import FLAGS
from gym_ray.errors import ConfigError


def test_flags_win_over_overrides_and_defaults_fill_what_is_left() -> None:
    settings = load_settings(
        None,
        ["+limit=7", "+output_jsonl_fpath=mine"],
        {"limit": 6, "head": None},
        {"output_jsonl_fpath": "o", "head": "h"},
    )
    assert (settings.limit, settings.output_jsonl_fpath, settings.head) == (6, "mine", "h")


def test_every_problem_is_told_at_once() -> None:
    with pytest.raises(ConfigError) as caught:
        load_settings(None, ["+num_repeatz=3", "+seed=-1"], {"num_samples_in_parallel": 0})
    told = str(caught.value).splitlines()
    assert len(told) == 3
    assert any("num_repeats" in line for line in told)
    assert any("--concurrency" in line for line in told)


def test_every_flag_that_is_spelled_unlike_its_setting_exists() -> None:
    command = get_command(app)
    assert isinstance(command, typer.core.TyperGroup)
    options = {name for parameter in command.commands["run"].params for name in parameter.opts}
    assert set(FLAGS.values()) <= options
