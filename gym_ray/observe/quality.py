"""What looks wrong with results that count: nothing a rule can call a failure, and worth a look. Pure.

    check                    names
    no_model_activity        results whose response reports no output tokens and holds no output
    no_reward                results without a reward
    same_reward              servers all of whose scored results, of several tasks, have one reward
    same_reply               tasks all of whose repeats (at least 3) came back with the same output
    duplicate_response_id    response ids that results of several rollouts carry
    server_without_results   servers with failures and not one result

A million results take about 100 MB: a digest for each reply and a response id.
"""

from collections import Counter, defaultdict
from collections.abc import Mapping
from typing import Any

import msgspec

from gym_ray import keys

MAX_EXAMPLES = 10
MIN_REPEATS = 3
"""Two equal replies happen; three are a cache, or a temperature of 0."""
MIN_RESULTS = 10
"""For calling a server's rewards all the same."""

Key = tuple[int, int]


class _Usage(msgspec.Struct):
    output_tokens: Any = None
    completion_tokens: Any = None


class _Response(msgspec.Struct):
    id: Any = None
    usage: _Usage | None = None
    output: msgspec.Raw = msgspec.Raw(b"")


class _Result(msgspec.Struct, rename={"server": keys.ENVIRONMENT_SERVER}):
    reward: Any = None
    server: Any = None
    response: _Response | None = None


_decode = msgspec.json.Decoder(_Result).decode
_EMPTY = frozenset({b"", b"[]", b"null"})


class Quality:
    """Takes every result that counts, in any order."""

    def __init__(self) -> None:
        self._results: Counter[str] = Counter()
        self._rewards: defaultdict[str, set[float]] = defaultdict(set)
        self._tasks: defaultdict[str, set[int]] = defaultdict(set)
        self._inactive: list[Key] = []
        self._unscored: list[Key] = []
        self._replies: dict[int, tuple[int, int, bool]] = {}
        """Task -> digest of its first output, results, whether all have that output."""
        self._ids: dict[str, Key] = {}
        self._twice: dict[str, list[Key]] = {}

    def add(self, key: Key, line: bytes) -> None:
        """Look at a result; `key` is its (task, rollout)."""
        try:
            result = _decode(line)
        except (msgspec.MsgspecError, RecursionError):
            return  # of an unusual shape: nothing is claimed about it
        server = result.server if isinstance(result.server, str) else ""
        self._results[server] += 1
        if isinstance(result.reward, int | float):
            rewards = self._rewards[server]
            if len(rewards) < 2:
                rewards.add(float(result.reward))
            tasks = self._tasks[server]
            if len(tasks) < 2:
                tasks.add(key[0])
        else:
            self._unscored.append(key)
        self._look_at_response(key, result.response)

    def _look_at_response(self, key: Key, response: _Response | None) -> None:
        output = b"" if response is None else bytes(response.output)
        usage = response.usage if response is not None else None
        tokens = (usage.output_tokens or usage.completion_tokens) if usage is not None else None
        if not tokens and output in _EMPTY:
            self._inactive.append(key)
            return
        first, count, is_same = self._replies.get(key[0], (0, 0, True))
        digest = hash(output) if is_same else 0  # two that differ settle it, however many follow
        self._replies[key[0]] = first if count else digest, count + 1, is_same and (not count or digest == first)
        if response is not None and isinstance(response.id, str):
            before = self._ids.setdefault(response.id, key)
            if before != key:
                self._twice.setdefault(response.id, [before]).append(key)

    def findings(self, failures_by_server: Mapping[str, int]) -> dict[str, dict[str, Any]]:
        """Check -> how many and which, of those that found something; ids of rollouts are `<task>-<rollout>`."""
        same = [task for task, (_, count, is_same) in self._replies.items() if is_same and count >= MIN_REPEATS]
        constant = [
            server
            for server, rewards in self._rewards.items()
            if len(rewards) == 1 and len(self._tasks[server]) > 1 and self._results[server] >= MIN_RESULTS
        ]
        silent = [server for server, count in failures_by_server.items() if count and not self._results[server]]
        twice = [_id(key) for found in self._twice.values() for key in found]
        found: dict[str, list[Any]] = {
            "no_model_activity": [_id(key) for key in self._inactive],
            "no_reward": [_id(key) for key in self._unscored],
            "same_reward": sorted(constant),
            "same_reply": sorted(same),
            "duplicate_response_id": twice,
            "server_without_results": sorted(silent),
        }
        return {
            check: {"count": len(named), "examples": named[:MAX_EXAMPLES]} for check, named in found.items() if named
        }


_TEXTS = {
    "no_model_activity": ("result shows no activity of a model", "results show no activity of a model"),
    "no_reward": ("result has no reward", "results have no reward"),
    "same_reward": ("server gave every result the same reward", "servers gave every result the same reward"),
    "same_reply": ("task got the same reply in every repeat", "tasks got the same reply in every repeat"),
    "duplicate_response_id": (
        "result shares a response id with another rollout",
        "results share a response id with another rollout",
    ),
    "server_without_results": ("server failed all of its rollouts", "servers failed all of their rollouts"),
}


def finding_lines(findings: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """The findings for a person; names are not made printable here."""
    return [_finding_line(check, found["count"], found["examples"]) for check, found in findings.items()]


def _finding_line(check: str, count: int, examples: list[Any]) -> str:
    one, many = _TEXTS[check]
    more = ", …" if count > 5 else ""
    return f"look at this: {count} {one if count == 1 else many} ({', '.join(map(str, examples[:5]))}{more})"


def _id(key: Key) -> str:
    return f"{key[0]}-{key[1]}"
