"""Reads what a run's settings name by path, and gives the settings of planning."""

import logging
import os
from collections.abc import Mapping
from datetime import UTC, datetime

from gym_ray.config import MAX_ROLLOUT_ATTEMPTS, RolloutCollectionConfig
from gym_ray.errors import ConfigError
from gym_ray.planning.selection import TaskChoice
from gym_ray.planning.shaping import DEFAULT, Shaping
from gym_ray.rows.locating import locate
from gym_ray.rows.prompt_files import load_prompt
from gym_ray.rows.skills import skills_reference

logger = logging.getLogger("gym_ray.planning")


def load_shaping(config: RolloutCollectionConfig, environ: Mapping[str, str] = os.environ) -> Shaping:
    """The shaping that a run's settings ask for. Reads the prompt, the skills and the list of task ids.

    Raises:
        ConfigError: one of these files cannot be used.
    """
    agent_map = dict(config.agent_map or {})
    if config.agent_name is not None:
        agent_map[DEFAULT] = config.agent_name
    return Shaping(
        limit=config.limit,
        choice=_choice(config, environ),
        prompt=load_prompt(config.prompt_config, environ) if config.prompt_config else None,
        agent_map=agent_map,
        fan_out={basis: tuple(agents) for basis, agents in (config.fan_out or {}).items()},
        num_repeats=config.num_repeats,
        num_repeats_add_seed=config.num_repeats_add_seed,
        interleave_repeats=config.interleave_repeats,
        interleave_by_agent=config.interleave_by_agent,
        overrides=config.responses_create_params,
        skills_ref=skills_reference(config.skills.path, environ) if config.skills else None,
        routing_mode=config.environment_routing_mode,
        environment_server_name=config.environment_server_name,
        environment_server_routes=config.environment_server_routes,
        allow_unsupported_pairing=config.allow_unsupported_pairing,
    )


def max_rollout_attempts(environ: Mapping[str, str] = os.environ) -> int | None:
    """The attempts that NEMO_GYM_MAX_ROLLOUT_ATTEMPTS allows; None if it is not set. Source: protocol §0.3."""
    text = environ.get("NEMO_GYM_MAX_ROLLOUT_ATTEMPTS", "").strip()
    if not text:
        return None
    if text.isdecimal() and len(text) <= 3 and 0 < int(text) <= MAX_ROLLOUT_ATTEMPTS:
        return int(text)
    logger.warning(
        "NEMO_GYM_MAX_ROLLOUT_ATTEMPTS: expected a number from 1 to %d, found %.40r; 3 is used",
        MAX_ROLLOUT_ATTEMPTS,
        text,
    )
    return 3


def seconds_to(
    deadline: str, grace_s: float, environ: Mapping[str, str] = os.environ, now: datetime | None = None
) -> float:
    """Seconds in which rollouts may start before a deadline, less the grace that ending takes; 0 if it is past.

    `deadline` is an ISO time, of this machine's zone unless it names one, or `slurm` for SLURM_JOB_END_TIME.

    Raises:
        ConfigError: it is neither, or this is no Slurm job.
    """
    if deadline == "slurm":
        text = environ.get("SLURM_JOB_END_TIME", "")
        if not text.isdecimal():
            raise ConfigError(f"deadline: slurm needs SLURM_JOB_END_TIME in Unix seconds, found {text!r}: give a time")
        end = datetime.fromtimestamp(int(text), UTC)
    else:
        try:
            end = datetime.fromisoformat(deadline).astimezone()
        except ValueError:
            raise ConfigError(f"deadline: expected an ISO time or slurm, found {deadline!r}") from None
    return max(0.0, (end - (now or datetime.now(UTC))).total_seconds() - grace_s)


def _choice(config: RolloutCollectionConfig, environ: Mapping[str, str]) -> TaskChoice:
    ids = config.task_ids
    if config.task_ids_fpath is not None:
        ids = read_task_ids(config.task_ids_fpath, environ)
    return TaskChoice(
        ids=None if ids is None else tuple(ids),
        ids_setting="task_ids" if config.task_ids_fpath is None else "task_ids_fpath",
        patterns=tuple(config.task_id or ()),
        excluded=tuple(config.exclude_task_id or ()),
        sample=config.sample,
        seed=config.seed,
    )


def read_task_ids(path: str, environ: Mapping[str, str] = os.environ) -> list[str]:
    """The ids in a file, one a line; blank lines and lines that start with # do not count.

    Raises:
        ConfigError: the file cannot be read, or has no id.
    """
    try:
        lines = locate(path, environ).read_text(encoding="utf-8-sig").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"task_ids_fpath: {path} cannot be read: {error}") from None
    ids = [text for line in lines if (text := line.strip()) and not text.startswith("#")]
    if not ids:
        raise ConfigError(f"task_ids_fpath: {path} has no task id: write one a line")
    return ids
