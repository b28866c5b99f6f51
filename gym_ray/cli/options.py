"""Options that several verbs share, described once."""

from typing import Annotated

import typer

Head = Annotated[str | None, typer.Option("--head", metavar="HOST:PORT", help="The head server of the deployment.")]
DeploymentFile = Annotated[
    str | None, typer.Option("--deployment", metavar="FILE", help="The merged config, for when no head server runs.")
]
ConfigFiles = Annotated[
    list[str] | None, typer.Option("--config", metavar="FILE", help="YAML settings; repeatable, later wins.")
]
Overrides = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[KEY=VALUE]...", help="Settings, as key=value, +key=value or ++key=value.", show_default=False
    ),
]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Log what is decided, with numbers.")]
JsonOutput = Annotated[bool, typer.Option("--json", help="Print the result as one JSON document.")]
Latency = Annotated[str, typer.Option("--latency", help="Example: seconds of a rollout, such as 50ms..2s.")]
Tail = Annotated[str, typer.Option("--tail", help="Example: share of rollouts that take 20 times as long, such as 2%.")]
Fail = Annotated[str, typer.Option("--fail", help="Example: shares of faults, such as 503=1%,drop=0.5%.")]

Input = Annotated[
    list[str] | None,
    typer.Option("--input", "-i", help="Input rows: a file, a URI or a glob (.jsonl[.gz|.zst], .parquet); repeatable."),
]
Agent = Annotated[str | None, typer.Option("--agent", "-a", help="Run every row on this agent.")]
Shards = Annotated[int | None, typer.Option(help="Shard actors and record files. [default: 2]")]
Concurrency = Annotated[int | None, typer.Option(help="The cap: rollouts in flight over the whole run. [default: 256]")]
NumRepeats = Annotated[int | None, typer.Option(help="Rollouts of each task. [default: 1]")]
Limit = Annotated[int | None, typer.Option(help="Use only the first N input rows.")]
InterleaveRepeats = Annotated[
    bool | None, typer.Option("--interleave-repeats", help="Rollout 0 of every task before rollout 1 of any.")
]
TaskIds = Annotated[
    list[str] | None, typer.Option("--task-id", help="Only tasks whose id matches; a glob, repeatable.")
]
ExcludeTaskIds = Annotated[
    list[str] | None, typer.Option("--exclude-task-id", help="No task whose id matches; a glob, repeatable.")
]
Sample = Annotated[int | None, typer.Option(help="A random sample of so many tasks.")]
Seed = Annotated[int | None, typer.Option(help="Seed of the sample. [default: 0]")]
