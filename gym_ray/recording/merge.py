"""All results of a run in one file, sorted by task and rollout. Bounded memory: lines pass through one at a time."""

from pathlib import Path

from gym_ray.recording.atomic import write_atomically
from gym_ray.recording.winners import RecordIndex


def merge_results(index: RecordIndex, target: Path) -> None:
    """Write the winning results; the same records give the same bytes, whatever files they were in.

    Raises:
        RecordingError: the file system refuses.
    """
    write_atomically(target, index.lines())
