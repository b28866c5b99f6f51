"""One input row as it was found, before anybody looked into it."""

from typing import NamedTuple


class SourceRow(NamedTuple):
    """The bytes of one row and where they are."""

    line: bytes
    """The row's JSON text without its line end."""
    source: str
    """The file, as the user named it; for rows in memory what to call them."""
    number: int
    """The line in the file, from 1; for rows that are not lines the row, from 0."""
    position: int
    """Rows before this one in the whole input."""
    is_line: bool = True
    is_terminated: bool = True
    """False for a last line without a line end: another text than the same line with one (protocol §5.4)."""
    identity_text: bytes | None = None
    """The text that stands for a row in memory when tasks are told apart; None for lines, whose text it is."""

    @property
    def where(self) -> str:
        """`rows.jsonl:17` for a line, `rows[16]` for a row that is not one."""
        return f"{self.source}:{self.number}" if self.is_line else f"{self.source}[{self.number}]"
