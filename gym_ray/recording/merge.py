"""All results of a run in one file, sorted by task and rollout. Bounded memory: lines pass through one at a time."""

from collections.abc import Callable, Iterator
from pathlib import Path

from gym_ray.recording.atomic import write_atomically
from gym_ray.recording.winners import RecordIndex


def merge_results(
    index: RecordIndex, target: Path, observe: Callable[[tuple[int, int], bytes], None] | None = None
) -> None:
    """Write the winning results; the same records give the same bytes, whatever files they were in.

    `observe` is shown each of them with its (task, rollout).

    Raises:
        RecordingError: the file system refuses.
    """

    def lines() -> Iterator[bytes]:
        for key, line in index.keyed_lines():
            if observe is not None:
                observe(key, line)
            yield line

    write_atomically(target, lines())
