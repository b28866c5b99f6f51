"""Options that several verbs share, described once."""

from typing import Annotated

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
