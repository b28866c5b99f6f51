"""Does a run folder hold what it says? Every file is read once and checked against the manifest and the equation.

Nothing is changed. Memory as `RecordIndex` and `History`: about 250 bytes for each rollout.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from itertools import count
from typing import Any

import msgspec

from gym_ray import keys
from gym_ray.errors import GymRayError, RunFolderError
from gym_ray.paths import RunPaths
from gym_ray.recording.found import FoundRun, find_run
from gym_ray.recording.history import History
from gym_ray.recording.manifest import Digest, read_manifest
from gym_ray.recording.plan_files import PlanFiles
from gym_ray.recording.run_files import RecordFiles, record_files
from gym_ray.recording.run_lock import holder_of
from gym_ray.recording.stamps import read_stamps
from gym_ray.recording.status import RunState, last_status, read_status
from gym_ray.recording.winners import RecordIndex, part_keys

MAX_NAMED = 20
"""Problems of one kind that are listed one by one."""


@dataclass(slots=True)
class Verification:
    """What was found in a run folder."""

    directory: str
    stem: str
    shards: int = 0
    run_id: str | None = None
    planned: int = 0
    results: int = 0
    final_failures: int = 0
    failures: int = 0
    """That another attempt may mend."""
    owed: int = 0
    """Without any record."""
    interrupted: int = 0
    """Of those that are owed: handed out, and lost with the process that had them."""
    duplicates: int = 0
    """Results that lost to a later attempt of the same rollout; they do not count."""
    is_counted: bool = False
    """False if damage has kept the records from being counted."""
    holder: str | None = None
    """Who writes here now; counts may be of different moments then."""
    problems: list[str] = field(default_factory=list)

    @property
    def is_sound(self) -> bool:
        return not self.problems

    @property
    def is_complete(self) -> bool:
        """True if every planned rollout has a result or a final failure."""
        return self.is_counted and self.planned == self.results + self.final_failures

    @property
    def equation(self) -> str:
        """Where every planned rollout is."""
        if not self.is_counted:
            return f"planned {self.planned}; damaged records were not counted: `gym-ray recover` sets them aside"
        return (
            f"planned {self.planned} = results {self.results} + final failures {self.final_failures} "
            f"+ failures {self.failures} + owed {self.owed}"
        )

    def to_dict(self) -> dict[str, Any]:
        """The verification as JSON values."""
        return {**asdict(self), "sound": self.is_sound, "complete": self.is_complete, "equation": self.equation}

    def lines(self) -> Iterator[str]:
        """The verification for a person; names of files are not made printable here."""
        yield f"{self.directory}: run {self.run_id or 'without a manifest'} named {self.stem}, {self.shards} shards"
        yield f"  {self.equation}"
        if self.interrupted:
            what = "were lost with their process" if self.holder is None else "are in flight, or their process has died"
            yield f"  {self.interrupted} of those owed {what}"
        if self.duplicates:
            yield f"  {self.duplicates} results lost to a later attempt of the same rollout and do not count"
        if self.holder is not None:
            yield f"  it is being written now: {self.holder}"
        for problem in self.problems:
            yield f"  PROBLEM: {problem}"
        yield f"  {'sound' if self.is_sound else 'NOT SOUND'}, {'complete' if self.is_complete else 'incomplete'}"


def verify_run(paths: RunPaths) -> Verification:
    """Check one run.

    Raises:
        RunFolderError: there is no run with this output.
    """
    found = find_run(paths)
    if found is None:
        raise RunFolderError(f"{paths.directory}: there is no run named {paths.stem!r}")
    checked = Verification(str(paths.directory), paths.stem, found.shards, holder=holder_of(found.paths))
    checked.run_id = found.manifest.run_id if found.manifest is not None else None
    try:
        _check(found, checked)
    except GymRayError as error:  # damage that leaves nothing to count
        checked.problems.append(str(error))
    return checked


def _check(found: FoundRun, checked: Verification) -> None:
    if not found.has_plan:
        raise RunFolderError(f"{found.paths.directory}: there are records and no plan: nobody can say what is owed")
    _check_manifests(found, checked)
    damaged = list(_damage(found.paths))
    checked.problems += damaged[:MAX_NAMED]
    if len(damaged) > MAX_NAMED:
        checked.problems.append(f"{len(damaged) - MAX_NAMED} more lines are damaged")
    plan = PlanFiles.open(found.paths, found.shards, lambda _: 0)
    try:
        _check_plan(plan, checked)
        if not damaged:
            _check_records(found, plan, checked)
    finally:
        plan.close()


def _check_manifests(found: FoundRun, checked: Verification) -> None:
    checked.problems += [f"{each}: `gym-ray recover` mends it" for each in found.damage]
    if found.manifest is None or found.damage:
        return
    for shard in range(found.shards):
        names = found.paths.shard(shard)
        manifest = read_manifest(names.manifest)
        assert manifest is not None  # else it were damage
        if manifest.run_id != found.manifest.run_id:
            checked.problems.append(f"{names.manifest}: is of run {manifest.run_id}, not {found.manifest.run_id}")
        elif manifest.materialized != Digest.of_file(names.materialized):
            checked.problems.append(f"{names.materialized}: is not the file that the manifest describes")


def _damage(paths: RunPaths) -> Iterator[str]:
    """Every line of a record file that is no record."""
    for path in record_files(paths).journals:
        with path.open("rb", 1 << 20) as stream:
            for number, line in enumerate(stream, 1):
                try:
                    read_stamps(line)
                except ValueError as error:
                    yield f"{path}:{number}: is no record: {error}"
                    continue
                if not line.endswith(b"\n"):
                    yield f"{path}:{number}: has no line end, it was cut off"


def _check_plan(plan: PlanFiles, checked: Verification) -> None:
    checked.planned = len(plan)
    counts = Counter(plan.key(number) for number in range(len(plan)))
    for key in [key for key, planned in counts.items() if planned > 1][:MAX_NAMED]:
        checked.problems.append(f"task {key[0]}, rollout {key[1]}: is planned {counts[key]} times")


def _check_records(found: FoundRun, plan: PlanFiles, checked: Verification) -> None:
    files = record_files(found.paths)
    history = History.read(map(plan.key, range(len(plan))), files, found.paths.attempts)
    cap = found.manifest.max_rollout_attempts if found.manifest is not None else 3
    for number in range(len(plan)):
        if history.has_result(number):
            checked.results += 1
        elif history.is_final(number, cap):
            checked.final_failures += 1
        elif history.has_failure(number):
            checked.failures += 1
        else:
            checked.owed += 1
            checked.interrupted += history.was_interrupted(number)
    checked.duplicates, checked.is_counted = history.duplicates, True
    if history.lost_results:
        checked.problems.append(f"{len(history.lost_results)} results that the log of attempts knows are in no file")
    if history.strangers:
        checked.problems.append(f"{history.strangers} records are of rollouts that the plan does not have")
    _check_places(found, plan, checked)
    _check_merged(found.paths, files, checked)
    _check_status(found.paths, checked)


def _check_places(found: FoundRun, plan: PlanFiles, checked: Verification) -> None:
    """Every record is in the files of the shard that owns its rollout."""
    owners = {plan.key(number): plan.owner(number) for number in range(len(plan))}
    for shard in range(found.shards):
        names = found.paths.shard(shard)
        for path in (names.results, names.failures):
            if not path.exists():
                if found.paths.attempts.exists():  # it is made after them
                    checked.problems.append(f"{path}: is missing")
                continue
            with path.open("rb", 1 << 20) as stream:
                stamps = map(read_stamps, stream)
                astray = sum(owners.get((each.task or 0, each.rollout or 0), shard) != shard for each in stamps)
            if astray:
                checked.problems.append(f"{path}: {astray} records belong to another shard")
        numbers = count()
        while (part := names.part(next(numbers))).exists():
            astray = sum(owners.get(key, shard) != shard for key in part_keys(part))
            if astray:
                checked.problems.append(f"{part}: {astray} records belong to another shard")


def _check_merged(paths: RunPaths, files: RecordFiles, checked: Verification) -> None:
    """The merged file, if there is one, holds the winning results and nothing else, in order."""
    if paths.is_single or not paths.merged.exists() or checked.holder is not None:
        return
    status = last_status(paths)
    if status is None or status.completed != checked.results:
        return  # it is of an earlier moment
    number = 0
    with paths.merged.open("rb", 1 << 20) as merged:
        for number, line in enumerate(RecordIndex.read(*files).lines(), 1):
            if merged.readline() != line:
                checked.problems.append(
                    f"{paths.merged}:{number}: is not the record of a shard file that counts here: `gym-ray merge`"
                )
                return
        if merged.readline():
            checked.problems.append(f"{paths.merged}: has more than the {number} results that count: `gym-ray merge`")


def _check_status(paths: RunPaths, checked: Verification) -> None:
    try:
        status = read_status(paths)
    except RunFolderError as error:
        checked.problems.append(f"{error}: `gym-ray recover` writes it anew")
        return
    if status is None or status.state is RunState.RUNNING:
        return
    for name, said, counted in (
        ("expected", status.expected, checked.planned),
        ("completed", status.completed, checked.results),
    ):
        # Of what it could not write to the end, a run that failed does not know how much is there
        if said > counted or (said < counted and status.state is not RunState.FAILED):
            checked.problems.append(f"{paths.run_status}: says {name} {said}, the files hold {counted}")
    if status.state is RunState.COMPLETE and not checked.is_complete:
        checked.problems.append(f"{paths.run_status}: says complete, and {checked.equation}")
    _check_metrics(paths, checked)


def _check_metrics(paths: RunPaths, checked: Verification) -> None:
    try:
        entries = msgspec.json.decode(paths.aggregate_metrics.read_bytes(), type=list[dict[str, msgspec.Raw]])
    except FileNotFoundError:
        return
    except msgspec.MsgspecError as error:
        checked.problems.append(f"{paths.aggregate_metrics}: is damaged: {error}")
        return
    if any(keys.AGGREGATION_ERROR in entry for entry in entries):
        checked.problems.append(
            f"{paths.aggregate_metrics}: a server did not aggregate: `gym-ray aggregate` tries again"
        )
