"""The names of a run's files, all derived from the output path `<dir>/<stem>.jsonl`.

Source: protocol §7.1. No other module builds one of these names.
"""

from dataclasses import dataclass
from pathlib import Path

from gym_ray.errors import ConfigError


@dataclass(frozen=True, slots=True)
class ShardPaths:
    """The files of one shard; readers that glob `<stem>-*.jsonl` skip the last two by their suffix."""

    results: Path
    failures: Path
    materialized: Path
    manifest: Path
    lock: Path

    def part(self, number: int) -> Path:
        """A sealed part of its records."""
        return self.results.with_name(f"{self.results.stem}_part-{number:05}.parquet")


@dataclass(frozen=True, slots=True)
class RunPaths:
    """The files of one run."""

    directory: Path
    stem: str
    is_single: bool = False
    """Its records are in one set of files named after the stem itself, as a collector without shards writes them."""

    @classmethod
    def of_output(cls, output: str | Path) -> "RunPaths":
        """The names for an output path; its suffix does not matter.

        Raises:
            ConfigError: it names no file, but a folder, a device, or nothing.
        """
        path = Path(output).expanduser().absolute()
        try:
            is_file_name = bool(str(output)) and bool(path.stem) and (not path.exists() or path.is_file())
        except OSError as error:  # a name that is too long
            raise ConfigError(f"output_jsonl_fpath: {output}: {error.strerror}") from None
        if not is_file_name or str(output).endswith(("/", "/.", "/..")):
            raise ConfigError(
                f"output_jsonl_fpath: expected the name of a file, such as out/rollouts.jsonl, found {output!s:.200}"
            )
        return cls(path.parent, path.stem)

    def shard(self, label: int | str) -> ShardPaths:
        """The files of the shard `label`."""
        base = self.stem if self.is_single else f"{self.stem}-{label}"
        return ShardPaths(
            results=self.directory / f"{base}.jsonl",
            failures=self.directory / f"{base}_failures.jsonl",
            materialized=self.directory / f"{base}_materialized_inputs.jsonl",
            manifest=self.directory / f"{base}_manifest.json",
            lock=self.directory / f"{base}.lock",
        )

    @property
    def merged(self) -> Path:
        """All results of the run, sorted by task and rollout."""
        return self.directory / f"{self.stem}.jsonl"

    @property
    def aggregate_metrics(self) -> Path:
        return self.directory / f"{self.stem}_aggregate_metrics.json"

    @property
    def coverage(self) -> Path:
        """How much of the plan the score covers."""
        return self.directory / f"{self.stem}_coverage.json"

    @property
    def quality(self) -> Path:
        """What looks wrong with results that count."""
        return self.directory / f"{self.stem}_quality.json"

    @property
    def resolved_config(self) -> Path:
        """The settings of the run, with which it can be run again."""
        return self.directory / f"{self.stem}_resolved_config.yaml"

    @property
    def task_selection(self) -> Path:
        """Which tasks of the input the run selected, if it did."""
        return self.directory / f"{self.stem}_task_selection.json"

    @property
    def run_lock(self) -> Path:
        """Locked by the run that writes here; never removed."""
        return self.directory / f".{self.stem}.run-lock"

    @property
    def run_holder(self) -> Path:
        """Who holds the lock, or held it last."""
        return self.directory / f".{self.stem}.holder"

    @property
    def archiving(self) -> Path:
        """There while an earlier run is moved aside."""
        return self.directory / f".{self.stem}.archiving"

    @property
    def control(self) -> Path:
        """What another process asks of the run."""
        return self.directory / f".{self.stem}.control.json"

    @property
    def log(self) -> Path:
        """What a run without a terminal says."""
        return self.directory / f"{self.stem}.log"

    @property
    def attempts(self) -> Path:
        """When each attempt started and ended."""
        return self.directory / f"{self.stem}_attempts.csv"

    @property
    def run_status(self) -> Path:
        return self.directory / f"{self.stem}_run_status.json"
