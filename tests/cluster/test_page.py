"""`cluster/README.md`: its commands are ones of the program, and what it links to is there."""

import re
from pathlib import Path

from tests.cluster.commands import commands_in, parsed

PAGE = Path(__file__).parents[2] / "cluster" / "README.md"


def test_its_commands_parse() -> None:
    blocks = re.findall(r"^```bash\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    commands = list(commands_in("\n".join(blocks)))
    assert [command[0] for command in commands] == ["run", "attach", "run", "run", "run", "run"]
    runs = [parsed(command) for command in commands if command[0] == "run"]
    assert all(str(run["output"]).startswith("/shared/") for run in runs[1:])  # the first is of a single machine
    assert all(run["resume"] for run in runs[2:])  # a job that is submitted goes on where the last one stopped


def test_what_it_links_to_is_there() -> None:
    links = re.findall(r"\]\(([^)#]+)\)", PAGE.read_text())
    assert links
    assert all((PAGE.parent / link).exists() for link in links)
