"""Progress for people and programs, and text of others that must not act on a terminal."""

import io
import json
from dataclasses import replace

import pytest
from rich.console import Console

from gym_ray.cli.progress import MAX_SERVERS, PLAIN_EVERY_S, Display, View, line, progress_display
from gym_ray.observe.tally import Progress, Tally
from gym_ray.outcomes.outcome import OutcomeKind


def snapshot(failure: str = "agent_run_error") -> Progress:
    tally = Tally({"one": 6, "two": 4}, 3, 0.0)
    tally.started(4)
    common = {"latency_ms": 5.0, "masked": False, "terminal": False, "sends": 1}
    tally.finished("one", OutcomeKind.RESULT, reward=1.0, failure_class=None, **common)  # type: ignore[arg-type]
    tally.finished("two", OutcomeKind.FAILURE, reward=None, failure_class=failure, **common)  # type: ignore[arg-type]
    return tally.snapshot(2.0)


def console(width: int = 100, height: int = 25, terminal: bool = False) -> Console:
    return Console(file=io.StringIO(), width=width, height=height, force_terminal=terminal, highlight=False)


def shown(target: Console) -> str:
    assert isinstance(target.file, io.StringIO)
    return target.file.getvalue()


def test_a_plain_line_says_it_all() -> None:
    assert line(snapshot()) == (
        "gym-ray: 2/10 done, 1 failed, 2/3 in flight, 1.0/s, mean reward 1.0000, elapsed 2.0 s, ETA 8.0 s"
    )


def test_a_line_says_when_only_merging_and_aggregating_are_left() -> None:
    over = replace(snapshot(), results=9)
    assert over.owed == 0
    assert line(over).endswith("elapsed 2.0 s, merging and aggregating")


def test_plain_lines_come_at_once_then_each_half_minute_and_at_the_end() -> None:
    target, times = console(), iter([0.0, 0.0, 0.0, 1.0, PLAIN_EVERY_S, PLAIN_EVERY_S, PLAIN_EVERY_S + 1])
    with progress_display(Display.PLAIN, target, lambda: next(times)) as show:
        for _ in range(4):
            show(snapshot())
        assert shown(target).count("\n") == 2
    assert shown(target).count("\n") == 3


def test_what_was_shown_last_is_not_shown_again() -> None:
    target = console()
    with progress_display(Display.PLAIN, target) as show:
        show(snapshot())
    assert shown(target).count("\n") == 1


def test_json_lines_are_json_and_carry_the_equation() -> None:
    target = console(width=20)
    with progress_display(Display.JSON, target) as show:
        show(snapshot("a" * 200))
    fields = json.loads(shown(target))
    assert fields["planned"] == sum(fields[part] for part in ("results", "failures", "drained", "omitted", "owed"))


@pytest.mark.parametrize("width", [20, 30, 59, 60, 80, 200])
@pytest.mark.parametrize("height", [3, 6, 25])
def test_the_live_view_fits_any_terminal(width: int, height: int) -> None:
    target = console(width, height, terminal=True)
    many = {f"server_{number}": server for number, server in enumerate([*snapshot().servers.values()] * 20)}
    target.print(View(replace(snapshot(), servers=many)))
    lines = shown(target).splitlines()
    assert "2/10" in lines[0]
    assert "1 failed" in shown(target)
    assert len(lines) < height


def test_a_narrow_view_leaves_the_servers_out() -> None:
    wide, narrow = console(100, terminal=True), console(40, terminal=True)
    for target in (wide, narrow):
        target.print(View(snapshot()))
    assert "two" in shown(wide)
    assert "two" not in shown(narrow)


def test_a_view_of_many_servers_says_how_many_it_hides() -> None:
    target = console(terminal=True)
    many = {f"server_{number}": server for number, server in enumerate([*snapshot().servers.values()] * 6)}
    target.print(View(replace(snapshot(), servers=many)))
    assert f"and {12 - MAX_SERVERS} more environment servers" in shown(target)


def test_text_of_others_does_not_act_on_the_terminal() -> None:
    target = console(terminal=True)
    target.print(View(snapshot("\x1b[2J[red]boo[/red]\u202e")))
    assert "\x1b[2J" not in shown(target)
    assert "[red]boo" in shown(target)
    assert "\u202e" not in shown(target)


def test_the_live_view_leaves_nothing_behind_but_what_was_told() -> None:
    target = console(terminal=True)
    with progress_display(Display.RICH, target) as show:
        show(snapshot())
    assert "\x1b[?25h" in shown(target)  # the cursor is shown again


def test_none_shows_nothing() -> None:
    target = console()
    with progress_display(Display.NONE, target) as show:
        show(snapshot())
    assert shown(target) == ""
