"""What people write for a profile, read into facts: `50ms..2s`, `2%`, `503=1%,drop=0.5%`.

Every message says which flag, what was expected and what was found.
"""

import re
from difflib import get_close_matches

from gym_ray.errors import ConfigError
from gym_ray.example.profile import Fault, FaultKind, LatencyRange, Profile

_DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m)")
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0}
_PERCENTAGE = re.compile(r"(\d+(?:\.\d+)?)\s*%")
_STATUS = re.compile(r"[45]\d\d")
_KINDS = {kind.value: kind for kind in FaultKind if kind is not FaultKind.STATUS}


def profile_of_texts(latency: str = "0", tail: str = "0", failures: str = "", seed: int = 0) -> Profile:
    """The profile that three flags and a seed describe.

    Raises:
        ConfigError: a text cannot be read.
    """
    return Profile(
        latency=latency_of_text(latency),
        tail_share=share_of_text(tail, "tail"),
        faults=faults_of_text(failures),
        seed=seed,
    )


def latency_of_text(text: str) -> LatencyRange:
    """`50ms..2s` is a range, `200ms` a fixed latency, `0` none.

    Raises:
        ConfigError: the text cannot be read.
    """
    low_text, separator, high_text = text.partition("..")
    low_s = _duration_s(low_text, text)
    high_s = _duration_s(high_text, text) if separator else low_s
    if low_s > high_s:
        raise ConfigError(f"latency {text!r}: expected the shorter time first, found {low_text} before {high_text}")
    return LatencyRange(low_s, high_s)


def share_of_text(text: str, flag: str) -> float:
    """`2%` is 0.02, `0` is 0.

    Raises:
        ConfigError: the text cannot be read; the message begins with `flag`.
    """
    stripped = text.strip()
    if stripped == "0":
        return 0.0
    if (match := _PERCENTAGE.fullmatch(stripped)) is None:
        raise ConfigError(f"{flag} {text!r}: expected a percentage such as 2%")
    if (share := float(match[1]) / 100) > 1:
        raise ConfigError(f"{flag} {text!r}: expected at most 100%")
    return share


def faults_of_text(text: str) -> tuple[tuple[Fault, float], ...]:
    """`503=1%,drop=0.5%` is two faults with their shares; an empty text is none.

    Raises:
        ConfigError: the text cannot be read, names a fault twice, or its shares exceed 100%.
    """
    faults: dict[Fault, float] = {}
    for entry in filter(None, (part.strip() for part in text.split(","))):
        name, separator, share_text = entry.partition("=")
        if not separator:
            raise ConfigError(f"failures {entry!r}: expected NAME=SHARE such as 503=1%")
        fault = _fault(name.strip())
        if fault in faults:
            raise ConfigError(f"failures {text!r}: {fault.name} is given twice")
        faults[fault] = share_of_text(share_text, f"failures {fault.name}")
    if (total := sum(faults.values())) > 1 + 1e-9:  # sums of percentages are not exact
        raise ConfigError(f"failures {text!r}: expected shares of at most 100% together, found {total:.4g} times that")
    return tuple(faults.items())


def _fault(name: str) -> Fault:
    if _STATUS.fullmatch(name):
        return Fault(FaultKind.STATUS, int(name))
    if (kind := _KINDS.get(name)) is not None:
        return Fault(kind)
    near = get_close_matches(name, _KINDS, n=1)
    hint = f"; did you mean {near[0]}?" if near else ""
    raise ConfigError(f"failures {name!r}: expected a status from 400 to 599 or one of {', '.join(_KINDS)}{hint}")


def _duration_s(text: str, whole: str) -> float:
    stripped = text.strip()
    if stripped == "0":
        return 0.0
    if (match := _DURATION.fullmatch(stripped)) is None:
        raise ConfigError(
            f"latency {whole!r}: expected a time such as 200ms, 2s or 1m, or a range 50ms..2s; found {text!r}"
        )
    return float(match[1]) * _SECONDS[match[2]]
