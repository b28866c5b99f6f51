"""The run that an output folder holds: how many record shards it has, and what its manifest says."""

import re
from dataclasses import dataclass, replace
from itertools import count

from gym_ray.errors import RunFolderError
from gym_ray.paths import RunPaths
from gym_ray.recording.manifest import ShardManifest, read_manifest
from gym_ray.recording.run_files import existing_files, is_unfinished_plan, record_files


@dataclass(frozen=True, slots=True)
class FoundRun:
    """A run on disk."""

    paths: RunPaths
    """The names of its files."""
    shards: int
    """How many record files of each kind it has."""
    manifest: ShardManifest | None
    """Of its first shard; None for a run that another collector has made."""
    has_plan: bool = True
    """False if only records are there: the plan is to be made anew."""
    damage: tuple[str, ...] = ()
    """Manifests that cannot be read or are missing beside those of other shards."""

    @property
    def is_foreign(self) -> bool:
        """True for a plan that was not made from settings of ours, so that none can be compared with it."""
        return self.has_plan and (self.manifest is None or not self.manifest.identity.settings)


def find_run(paths: RunPaths) -> FoundRun | None:
    """The run in the folder of `paths`; None if there is none.

    Its plan may be in numbered shards, or in one file that is named after the stem, as collectors without shards
    write it.

    Raises:
        RunFolderError: a shard has no plan, a manifest cannot be used, or half of the run was moved aside.
    """
    if paths.archiving.exists() and (rest := existing_files(paths)):
        raise RunFolderError(
            f"{rest[0]}: is what is left of a run that was being moved aside when that was cut short: pass --fresh to "
            "move the rest too"
        )
    single, numbered = replace(paths, is_single=True), replace(paths, is_single=False)
    if not paths.is_single and (shards := _planned_shards(numbered)):
        return _planned(numbered, shards)
    if single.shard(0).materialized.exists():
        return _planned(single, 1)
    shards = 0 if paths.is_single else _recorded_shards(numbered)
    if shards or single.shard(0).results.exists():
        held = numbered if shards else single
        if (manifest := held.shard(0).manifest).exists() or (shards and numbered.shard(shards - 1).manifest.exists()):
            raise RunFolderError(
                f"{held.shard(0).materialized}: is missing, though {manifest.name} describes it: restore it, or pass "
                "--fresh to move the run aside; another plan would take its records for those of other rows"
            )
        return FoundRun(held, max(shards, 1), None, has_plan=False)
    if (files := existing_files(paths)) and not is_unfinished_plan(paths):
        raise RunFolderError(
            f"{files[0]}: belongs to a run of which neither plan nor records are left: pass --fresh to move it aside"
        )
    return None


def _planned_shards(paths: RunPaths) -> int:
    return next(shard for shard in count() if not paths.shard(shard).materialized.exists())


def _recorded_shards(paths: RunPaths) -> int:
    number = re.compile(re.escape(paths.stem) + "-([0-9]+)(_failures|_part-[0-9]+)?")
    found = [number.fullmatch(path.stem) for files in record_files(paths) for path in files]
    return max((int(name[1]) + 1 for name in found if name is not None), default=0)


def _planned(paths: RunPaths, shards: int) -> FoundRun:
    manifests, damage = list[ShardManifest](), list[str]()
    for shard in range(shards):
        path = paths.shard(shard).manifest
        try:
            manifest = read_manifest(path)
        except RunFolderError as error:
            damage.append(str(error))
            continue
        if manifest is None:
            damage.append(f"{path}: is missing")
        else:
            manifests.append(manifest)
    if not manifests:
        damage = [each for each in damage if not each.endswith("is missing")]  # another collector writes none
    first = manifests[0] if manifests else None
    if not paths.is_single:  # a single one may be one shard of many, continued by itself
        expected = max(shards if first is None else first.shards, _recorded_shards(paths))
        if expected != shards:
            missing = paths.shard(shards).materialized
            raise RunFolderError(
                f"{missing}: expected the plans of {expected} shards, found {shards}: "
                "restore this file, or pass --fresh to move the run aside"
            )
    return FoundRun(paths, shards, first, damage=tuple(damage))
