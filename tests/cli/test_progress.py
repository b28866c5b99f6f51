"""Progress for people and programs, and text of others that must not act on a terminal."""

import io
import json

import pytest
from rich.console import Console

from gym_ray.cli.progress import PLAIN_EVERY_S, Display, line, progress_display, view
from gym_ray.observe.tally import Progress, Tally
from gym_ray.outcomes.outcome import OutcomeKind


def snapshot(failure: str = "agent_run_error") -> Progress:
    tally = Tally({"one": 6, "two": 4}, 3, 0.0)
    tally.started(4)
    common = {"latency_ms": 5.0, "masked": False, "terminal": False, "sends": 1}
    tally.finished("one", OutcomeKind.RESULT, reward=1.0, failure_class=None, **common)  # type: ignore[arg-type]
    tally.finished("two", OutcomeKind.FAILURE, reward=None, failure_class=failure, **common)  # type: ignore[arg-type]
    return tally.snapshot(2.0)


def console(width: int = 100, terminal: bool = False) -> Console:
    return Console(file=io.StringIO(), width=width, force_terminal=terminal, highlight=False)


def shown(target: Console) -> str:
    assert isinstance(target.file, io.StringIO)
    return target.file.getvalue()


def test_a_plain_line_says_it_all() -> None:
    assert line(snapshot()) == (
        "gym-ray: 2/10 done, 1 failed, 2/3 in flight, 1.0/s, mean reward 1.0000, elapsed 2.0 s, ETA 8.0 s"
    )


def test_plain_lines_come_at_once_and_then_each_half_minute() -> None:
    target, times = console(), iter([0.0, 0.0, 0.0, 1.0, PLAIN_EVERY_S, PLAIN_EVERY_S, PLAIN_EVERY_S + 1])
    with progress_display(Display.PLAIN, target, lambda: next(times)) as show:
        for _ in range(4):
            show(snapshot())
    assert shown(target).count("\n") == 2


def test_json_lines_are_json_and_carry_the_equation() -> None:
    target = console()
    with progress_display(Display.JSON, target) as show:
        show(snapshot())
    fields = json.loads(shown(target))
    assert fields["planned"] == sum(fields[part] for part in ("results", "failures", "drained", "omitted", "owed"))


@pytest.mark.parametrize("width", [30, 80, 200])
def test_the_live_view_fits_any_width(width: int) -> None:
    target = console(width, terminal=True)
    target.print(view(snapshot()))
    assert "2/10" in shown(target)


def test_text_of_others_does_not_act_on_the_terminal() -> None:
    target = console(terminal=True)
    target.print(view(snapshot("\x1b[2J[red]boo[/red]\u202e")))
    assert "\x1b[2J" not in shown(target)
    assert "[red]boo" in shown(target)
    assert "\u202e" not in shown(target)


def test_none_shows_nothing() -> None:
    target = console()
    with progress_display(Display.NONE, target) as show:
        show(snapshot())
    assert shown(target) == ""
