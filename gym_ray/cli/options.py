"""Options that several verbs share, described once."""

from typing import Annotated, Literal

import typer

# Panels of `--help`
ROWS = "What runs"
SERVERS = "Which deployment serves"
CAPACITY = "How much at once, and where"
SHOWN = "What is shown"
EXAMPLE = "The bundled deployment"

Head = Annotated[
    str | None,
    typer.Option(
        "--head",
        metavar="HOST:PORT",
        help="The head server; else NEMO_GYM_CONFIG_DICT, else 127.0.0.1:11000.",
        rich_help_panel=SERVERS,
    ),
]
DeploymentFile = Annotated[
    str | None,
    typer.Option(
        "--deployment", metavar="FILE", help="The merged config, for when no head server runs.", rich_help_panel=SERVERS
    ),
]
ConfigFiles = Annotated[
    list[str] | None, typer.Option("--config", metavar="FILE", help="YAML settings; repeatable, later wins.")
]
Overrides = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[KEY=VALUE]...",
        help="Any other setting, as key=value, +key=value or ++key=value.",
        show_default=False,
    ),
]
Verbose = Annotated[
    bool, typer.Option("--verbose", "-v", help="Log what is decided, with numbers.", rich_help_panel=SHOWN)
]
JsonOutput = Annotated[
    bool, typer.Option("--json", help="Print the result as one JSON document on stdout.", rich_help_panel=SHOWN)
]
Latency = Annotated[
    str, typer.Option("--latency", help="Time that a rollout takes, such as 50ms..2s.", rich_help_panel=EXAMPLE)
]
Tail = Annotated[
    str,
    typer.Option("--tail", help="Share of rollouts that take 20 times as long, such as 2%.", rich_help_panel=EXAMPLE),
]
Fail = Annotated[
    str,
    typer.Option("--fail", help="Shares of faults, such as 503=1%,drop=0.5%.", rich_help_panel=EXAMPLE),
]

Input = Annotated[
    list[str] | None,
    typer.Option(
        "--input",
        "-i",
        help="Input rows: a file, a URI or a glob (.jsonl[.gz|.zst], .parquet); repeatable.",
        rich_help_panel=ROWS,
    ),
]
Output = Annotated[
    str | None,
    typer.Option(
        "--output", "-o", help="DIR/STEM.jsonl; every file of the run is named after it.", rich_help_panel=ROWS
    ),
]
Agent = Annotated[str | None, typer.Option("--agent", "-a", help="Run every row on this agent.", rich_help_panel=ROWS)]
NumRepeats = Annotated[int | None, typer.Option(help="Rollouts of each task (default 1).", rich_help_panel=ROWS)]
Limit = Annotated[int | None, typer.Option(help="Use only the first N input rows.", rich_help_panel=ROWS)]
TaskIds = Annotated[
    list[str] | None,
    typer.Option("--task-id", help="Run only tasks whose id matches; a glob, repeatable.", rich_help_panel=ROWS),
]
ExcludeTaskIds = Annotated[
    list[str] | None,
    typer.Option(
        "--exclude-task-id", help="Leave out tasks whose id matches; a glob, repeatable.", rich_help_panel=ROWS
    ),
]
Sample = Annotated[int | None, typer.Option(help="Run a random sample of so many tasks.", rich_help_panel=ROWS)]
Seed = Annotated[int | None, typer.Option(help="Seed of the sample (default 0).", rich_help_panel=ROWS)]
PromptConfig = Annotated[
    str | None, typer.Option(help="A YAML file with prompts, for rows without input.", rich_help_panel=ROWS)
]
InterleaveRepeats = Annotated[
    bool | None,
    typer.Option("--interleave-repeats", help="Rollout 0 of every task before rollout 1 of any.", rich_help_panel=ROWS),
]
Shards = Annotated[
    int | None, typer.Option(help="Shard actors and record files (default 2).", rich_help_panel=CAPACITY)
]
Concurrency = Annotated[
    int | None,
    typer.Option(help="The cap: rollouts in flight over the whole run (default 256).", rich_help_panel=CAPACITY),
]
Executor = Annotated[
    Literal["ray", "local"] | None,
    typer.Option(help="Ray actors (default), or everything in this process.", rich_help_panel=CAPACITY),
]
Address = Annotated[
    str | None,
    typer.Option(help="Ray cluster to join; else RAY_ADDRESS, else a local one.", rich_help_panel=CAPACITY),
]
Display = Annotated[
    Literal["auto", "rich", "plain", "json", "none"],
    typer.Option(help="Progress on stderr: a live view on a terminal, else a line each 30 s.", rich_help_panel=SHOWN),
]
