"""Trials as a table for people: the median of each side, and how it compares with one of them."""

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import fields

from rich.table import Table

from benchmarks.trial import Trial

COLUMNS = {
    "cpu_us_whole": ("CPU µs/rollout", ".0f"),
    "cpu_us_running": ("after start", ".0f"),
    "cpu_us_collection": ("collection", ".0f"),
    "rollouts_per_s": ("rollouts/s", ".0f"),
    "wall_s": ("wall s", ".1f"),
    "peak_rss_mb": ("peak MB", ".0f"),
    "dispatching_rss_mb": ("driver+shards MB", ".0f"),
    "dispatching_private_mb": ("private MB", ".0f"),
    "peak_in_flight": ("in flight", ".0f"),
    "server_cpu_us": ("server", ".0f"),
}
COMPARED = ("cpu_us_whole", "cpu_us_running", "cpu_us_collection", "rollouts_per_s")
"""Columns for which the ratio to the yardstick says something."""


def median(trials: Sequence[Trial]) -> Trial:
    """Field by field; the trials are of one side and one scenario."""
    values = {
        field.name: statistics.median(getattr(trial, field.name) for trial in trials)
        for field in fields(Trial)
        if field.name not in {"side", "scenario", "cpu_us_by_process"}
    }
    titles = {title for trial in trials for title in trial.cpu_us_by_process}
    by_process = {
        title: statistics.median(trial.cpu_us_by_process.get(title, 0.0) for trial in trials) for title in titles
    }
    return Trial(side=trials[0].side, scenario=trials[0].scenario, cpu_us_by_process=by_process, **values)


def breakdown(trial: Trial) -> str:
    """Which processes used the CPU while rollouts ran, on one line."""
    used = sorted(trial.cpu_us_by_process.items(), key=lambda item: -item[1])
    return f"{trial.side}: " + ", ".join(f"{title} {value:.0f}" for title, value in used if value >= 0.5)


def table(title: str, medians: Iterable[Trial], yardstick: str) -> Table:
    """One row for each side, with the ratio to the side `yardstick` in brackets."""
    rows = list(medians)
    base = next((trial for trial in rows if trial.side == yardstick), None)
    drawn = Table(title=title, title_justify="left", caption=f"(x) is the ratio to {yardstick}" if base else None)
    drawn.add_column("side")
    for heading, _ in COLUMNS.values():
        drawn.add_column(heading, justify="right")
    for trial in rows:
        drawn.add_row(trial.side, *(_cell(trial, name, base) for name in COLUMNS))
    return drawn


def ratios(medians: Iterable[Trial], yardstick: str) -> str:
    """How every other side compares with the side `yardstick`, on one line; empty if that was not measured."""
    rows = list(medians)
    base = next((trial for trial in rows if trial.side == yardstick), None)
    if base is None:
        return ""
    compared = (
        f"{trial.side}: "
        + ", ".join(f"{COLUMNS[name][0]} {getattr(trial, name) / getattr(base, name):.2f}x" for name in COMPARED)
        for trial in rows
        if trial is not base
    )
    return f"ratio to {yardstick}: {'; '.join(compared)}"


def _cell(trial: Trial, name: str, base: Trial | None) -> str:
    value: float = getattr(trial, name)
    shown = format(value, COLUMNS[name][1])
    if base is None or name not in COMPARED:
        return shown
    return f"{shown} ({value / getattr(base, name):.2f}x)"
