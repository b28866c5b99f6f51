"""The grammar of overrides: protocol §10.2."""

from typing import Any

import pytest

from gym_ray.config_files.overrides import parse_override
from gym_ray.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "mode", "key", "value"),
    [
        ("limit=5", "", "limit", 5),
        ("+limit=5", "+", "limit", 5),
        ("++limit=5", "++", "limit", 5),
        ("+responses_create_params.temperature=0.2", "+", "responses_create_params.temperature", 0.2),
        ("x=", "", "x", ""),
        ("x=null", "", "x", None),
        ("x=true", "", "x", True),
        ("x=1e-3", "", "x", 0.001),
        ("x=text", "", "x", "text"),
        ("x='5'", "", "x", "5"),
        ("x=a=b", "", "x", "a=b"),
        ("x=[a,b, 3]", "", "x", ["a", "b", 3]),
        ("x=[a,http://h:1/p]", "", "x", ["a", "http://h:1/p"]),
        ("x={a: 2, _default: 1}", "", "x", {"a": 2, "_default": 1}),
        ("x={a:2,_default:1}", "", "x", {"a": 2, "_default": 1}),
        ("x={rs:[a,b],url:http://h:1/p}", "", "x", {"rs": ["a", "b"], "url": "http://h:1/p"}),
        ("x={'maze:eval': e}", "", "x", {"maze:eval": "e"}),
        ("x=node-7:11000", "", "x", "node-7:11000"),
        ("x=${oc.env:HOME}", "", "x", "${oc.env:HOME}"),
        ("x=/data/rows *.jsonl", "", "x", "/data/rows *.jsonl"),
    ],
)
def test_an_override_has_a_mode_a_key_and_a_value(text: str, mode: str, key: str, value: Any) -> None:
    override = parse_override(text)
    assert (override.mode, override.path, override.value) == (mode, key, value)
    assert override.name == f"{mode}{key}=..."


@pytest.mark.parametrize("text", ["limit", "=5", "+=5", "+++limit=5", "~limit=5", "a..b=1", ".a=1", "--limit"])
def test_what_is_no_override_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="expected an override such as"):
        parse_override(text)


@pytest.mark.parametrize("text", ["x=[a", "x={a: 1", "x='a", "x=${a"])
def test_a_value_that_cannot_be_read_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="the value cannot be read"):
        parse_override(text)
