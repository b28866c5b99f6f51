"""Plans rows into the materialized inputs of a run, one file for each shard.

Streams: a plan of any length needs a few tens of bytes of memory for each rollout, in whatever order they start.
"""

from array import array
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from itertools import islice
from pathlib import Path
from typing import Self

from gym_ray.deployment.lookup import Deployment
from gym_ray.errors import RecordingError
from gym_ray.paths import RunPaths
from gym_ray.planning.balance import ShardBalance, balanced_owners
from gym_ray.planning.draft import Draft
from gym_ray.planning.ordering import round_by_round, taking_turns
from gym_ray.planning.planner import Planner, PlanSummary, Rollout
from gym_ray.planning.shaping import Shaping
from gym_ray.rows.source_row import SourceRow
from gym_ray.rows.splicing import encode


def write_plan(
    rows: Iterable[SourceRow],
    shaping: Shaping,
    deployment: Deployment,
    paths: RunPaths,
    shards: int,
    *,
    make_room: Callable[[], object] = lambda: None,
) -> PlanSummary:
    """Write `paths.shard(k).materialized` for every shard `k`, and the record of a selection; say what is in them.

    Each line is one rollout; within a file lines are in start order. All rollouts of a task are in one file, and the
    files differ by at most one task's rollouts. The same rows, shaping and deployment give the same bytes.

    With a sample, `rows` are read twice; those of an iterator are kept in memory for that.

    Args:
        make_room: called once the plan is known to be valid, before a file of an earlier run would be replaced.

    Raises:
        InputError, RoutingError, ConfigError: the plan is not valid; every problem is listed, nothing is written.
        RecordingError: the files cannot be written.
    """
    with PlanWriter(shaping, deployment, paths, shards) as writer:
        writer.extend(islice(writer.drawn_from(rows), shaping.limit or None))
        return writer.publish(make_room)


class PlanWriter:
    """As `write_plan`, for rows that arrive. A context manager: leaving it removes what was not published."""

    def __init__(self, shaping: Shaping, deployment: Deployment, paths: RunPaths, shards: int) -> None:
        self._shaping = shaping
        self._paths = paths
        self._planner = Planner(shaping, deployment)
        self._balance = ShardBalance(shards)
        self._log = _RolloutLog()
        self._drafts = ExitStack()
        self._targets = [paths.shard(shard).materialized for shard in range(shards)]
        try:
            paths.directory.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise RecordingError(f"{paths.directory}: the folder cannot be made: {error.strerror}") from error
        self._draft = self._new_draft()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._drafts.close()

    def drawn_from(self, rows: Iterable[SourceRow]) -> Iterable[SourceRow]:
        """Draw the sample that the shaping asks for, if any; returns the rows, to be planned next."""
        return self._planner.drawn_from(rows)

    def give_up(self) -> None:
        """Have `drawn_from` and `extend` in another thread stop, soon."""
        self._planner.give_up()

    def extend(self, rows: Iterable[SourceRow]) -> None:
        """Plan further rows. The limit of the shaping is the caller's business."""
        plan, own, put, log = self._planner.plan, self._balance.add, self._draft.put, self._log.add
        for row in rows:
            for rollout in plan(row):
                put(own(rollout.task.slot, 1), rollout.line)
                log(rollout)

    def publish(
        self,
        make_room: Callable[[], object] = lambda: None,
        announce: Callable[[PlanSummary, list[Path]], object] = lambda _summary, _files: None,
    ) -> PlanSummary:
        """Give the files their names, or raise what is wrong with the plan; see `write_plan`.

        `announce` is called with the finished files just before: what must be known of the plan once it is there.
        """
        summary = self._arranged(make_room)
        self._draft.flush()
        announce(summary, self._draft.files)
        if summary.selection is not None:
            selection = self._new_draft(selects=True)
            selection.put(0, encode(summary.selection))
            selection.publish()
        self._draft.publish()
        return summary

    def drafted(self) -> tuple[PlanSummary, list[Path]]:
        """The whole plan under temporary names, one file for each shard, which vanish with this writer."""
        summary = self._arranged(lambda: None)
        self._draft.flush()
        return summary, self._draft.files

    def _arranged(self, make_room: Callable[[], object]) -> PlanSummary:
        """Check the plan, and bring the lines into the order and to the owners in which they stay."""
        sizes, owners = self._planner.numbering.rollouts_by_slot, self._balance.owners
        if self._balance.has_late_rows:
            owners = balanced_owners(sizes, len(self._targets))
        loads = [0] * len(self._targets)
        for owner, size in zip(owners, sizes, strict=True):
            loads[owner] += size
        summary = self._planner.summarize(tuple(loads))
        make_room()
        if self._shaping.is_reordered or owners != self._balance.owners:
            self._rearrange(owners)
        return summary

    def _new_draft(self, *, selects: bool = False) -> Draft:
        draft = Draft([self._paths.task_selection] if selects else self._targets)
        self._drafts.callback(draft.discard)
        return draft

    def _rearrange(self, owners: "array[int]") -> None:
        """Copy the lines once more: in start order, and to the owners that balance once every task's size is known."""
        earlier, self._draft = self._draft, self._new_draft()
        earlier.flush()
        slots, lengths = self._log.slots, self._log.lengths
        old_owners = self._balance.owners
        offsets = _offsets(slots, lengths, old_owners, len(self._targets))
        with earlier.reader() as reader:
            for position in self._log.start_order(self._shaping):
                slot = slots[position]
                line = reader.read(old_owners[slot], offsets[position], lengths[position])
                self._draft.put(owners[slot], line)
        earlier.discard()


class _RolloutLog:
    """What rearranging needs to know of every rollout, by its position in the plan as it was expanded."""

    def __init__(self) -> None:
        self.slots, self.lengths = array("I"), array("I")
        self._rounds, self._names = array("I"), array("H")
        self._known_names: dict[str, int] = {}

    def add(self, rollout: Rollout) -> None:
        """Note the next rollout."""
        self.slots.append(rollout.task.slot)
        self.lengths.append(len(rollout.line))
        self._rounds.append(rollout.number)
        name = rollout.destination.dispatch_name
        self._names.append(self._known_names.setdefault(name, len(self._known_names)))

    def start_order(self, shaping: Shaping) -> "array[int] | range":
        """The positions in the order in which the rollouts start."""
        order = round_by_round(self._rounds) if shaping.interleave_repeats else range(len(self.slots))
        return taking_turns(order, self._names) if shaping.interleave_by_agent else order


def _offsets(slots: "array[int]", lengths: "array[int]", owners: "array[int]", shards: int) -> "array[int]":
    """Where each rollout's line begins in the file of its owner."""
    ends = [0] * shards
    offsets = array("Q")
    for slot, length in zip(slots, lengths, strict=True):
        owner = owners[slot]
        offsets.append(ends[owner])
        ends[owner] += length + 1
    return offsets
