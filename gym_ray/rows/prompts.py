"""Prompt templates: the messages that a run writes into rows which bring none. Pure.

Source: protocol §5.8.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Prompt:
    """A template whose `{field}` places are filled from the top-level fields of a row."""

    user: str
    system: str | None = None

    def messages(self, row: Mapping[str, Any]) -> list[dict[str, str]]:
        """The messages for a row.

        Raises:
            ValueError: the row lacks a field, or a field does not have what the template asks of it.
        """
        texts = [("system", self.system), ("user", self.user)]
        return [{"role": role, "content": _filled(text, row)} for role, text in texts if text is not None]


def _filled(template: str, row: Mapping[str, Any]) -> str:
    try:
        return template.format_map(row)
    except KeyError as error:
        raise ValueError(f"the template asks for the field {error}, which the row does not have") from None
    except (AttributeError, IndexError, TypeError, ValueError) as error:
        raise ValueError(f"the template cannot be filled: {error}") from None
