"""The manifest of a shard: which run it belongs to, and a digest by which its plan is known again.

No configuration values and no credentials. Fields that a later version adds are passed over. Source: protocol §7.7.3.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import msgspec

from gym_ray.errors import RunFolderError
from gym_ray.paths import RunPaths
from gym_ray.recording.atomic import write_json_atomically

FORMAT_VERSION = 1


class Digest(msgspec.Struct, frozen=True):
    """The content of a file of lines."""

    sha256: str
    rows: int

    @classmethod
    def of_file(cls, path: Path) -> Self:
        """Read a file once, streamed: about 1.5 GB/s."""
        digest, rows = hashlib.sha256(), 0
        with path.open("rb", 0) as stream:
            while block := stream.read(1 << 20):
                digest.update(block)
                rows += block.count(b"\n")
        return cls(digest.hexdigest(), rows)


class Identity(msgspec.Struct, frozen=True, kw_only=True):
    """What a run must still be to be continued, as digests."""

    settings: dict[str, str] = {}
    """Setting -> digest, of the settings that shape the plan; only to name what differs, the plan itself decides."""
    configuration: dict[str, str] = {}
    """Dotted key of the deployment's config -> digest."""

    @classmethod
    def of_settings(cls, settings: Mapping[str, Any], configuration: dict[str, str]) -> Self:
        """The identity of settings given as JSON values."""
        return cls(
            settings={
                key: hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:16]
                for key, value in sorted(settings.items())
            },
            configuration=configuration,
        )


class ShardManifest(msgspec.Struct, frozen=True, kw_only=True):
    """What `<stem>-<shard>_manifest.json` says."""

    run_id: str
    created_at: str
    """UTC, `2026-01-05T10:00:00Z`."""
    shard: int
    shards: int
    """Record shards of the run."""
    materialized: Digest
    """Of the plan of this shard."""
    identity: Identity = Identity()
    max_rollout_attempts: int = 3
    format_version: int = FORMAT_VERSION


def write_manifests(
    paths: RunPaths,
    *,
    run_id: str,
    shards: int,
    created_at: str,
    identity: Identity,
    max_rollout_attempts: int,
    plans: Sequence[Path] | None = None,
) -> None:
    """Write the manifest of every shard, from the materialized inputs as they are, or from `plans` that will be them.

    One that is there keeps its time, and its place among the shards of a larger run.

    Raises:
        RecordingError: the file system refuses.
        FileNotFoundError: a shard has no materialized inputs.
    """
    for shard in range(shards):
        names = paths.shard(shard)
        held = read_manifest(names.manifest)
        manifest = ShardManifest(
            run_id=run_id,
            created_at=created_at if held is None else held.created_at,
            shard=shard if held is None else held.shard,
            shards=shards if held is None else held.shards,
            materialized=Digest.of_file(names.materialized if plans is None else plans[shard]),
            identity=identity,
            max_rollout_attempts=max_rollout_attempts,
        )
        write_json_atomically(names.manifest, msgspec.to_builtins(manifest))


def read_manifest(path: Path) -> ShardManifest | None:
    """The manifest of a shard; None if there is none.

    Raises:
        RunFolderError: it is damaged, or of a version that this program does not know.
    """
    try:
        manifest = msgspec.json.decode(path.read_bytes(), type=ShardManifest)
    except FileNotFoundError:
        return None
    except msgspec.MsgspecError as error:
        raise RunFolderError(f"{path}: expected the manifest of a shard, found damage: {error}") from None
    if manifest.format_version != FORMAT_VERSION:
        raise RunFolderError(
            f"{path}: expected format_version {FORMAT_VERSION}, found {manifest.format_version}: "
            "use the version of gym_ray that has made this run"
        )
    return manifest
