import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from gym_ray.rows.splicing import _scan_members, append, encode, encode_text, members, splice

TEXT = st.text(st.characters(codec="utf-8"), max_size=8)
ANY_TEXT = st.text(st.characters(), max_size=8)  # lone surrogates included
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**30), 10**30)
    | st.floats(allow_nan=False, allow_infinity=False)
    | ANY_TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(ANY_TEXT, inner, max_size=3),
    max_leaves=8,
)
OBJECTS = st.dictionaries(ANY_TEXT, VALUES, max_size=5)
STYLES = st.sampled_from([{}, {"separators": (",", ":")}, {"separators": (" ,\t", "  : ")}])


def test_a_member_is_replaced_in_its_place_and_a_new_one_comes_last() -> None:
    assert (
        splice(b'{"a": 1.10, "b": [1, 2], "c": null}', {"b": b'"x"', "d": b"7"}) == b'{"a":1.10,"b":"x","c":null,"d":7}'
    )


def test_a_member_is_removed() -> None:
    assert splice(b'{"a":1,"b":2}', {"a": None, "not there": None}) == b'{"b":2}'


def test_the_text_of_other_values_is_not_touched() -> None:
    odd = (
        rb'{"n": 123456789012345678901234567890, "f": 1.500e+3, "z": -0.0, "s": "\ud83d\u00e9 \ud800", "o": {"k" : 1}}'
    )
    values = members(splice(odd, {"x": b"1"}))
    assert values["n"] == b"123456789012345678901234567890"
    assert values["f"] == b"1.500e+3"
    assert values["z"] == b"-0.0"
    assert values["s"] == rb'"\ud83d\u00e9 \ud800"'
    assert values["o"] == b'{"k" : 1}'


def test_members_are_appended_to_full_and_empty_objects() -> None:
    assert append(b'{"a": 1 }', b'"b":2') == b'{"a": 1,"b":2}'
    assert append(b"{ }", b'"b":2') == b'{"b":2}'


def test_a_lone_surrogate_is_written_as_an_escape() -> None:
    assert encode_text("\ud800") == b'"\\ud800"'
    assert encode({"é": "\ud800"}) == b'{"\\u00e9":"\\ud800"}'
    assert encode({"é": 1}) == '{"é":1}'.encode()


@given(row=OBJECTS, style=STYLES)
def test_members_hold_what_the_object_holds(row: dict[str, Any], style: dict[str, Any]) -> None:
    line = json.dumps(row, **style).encode()
    found = {key: json.loads(value) for key, value in members(line).items()}
    assert found == row
    assert list(found) == list(row)


@given(row=OBJECTS, style=STYLES)
def test_both_ways_of_reading_members_agree(row: dict[str, Any], style: dict[str, Any]) -> None:
    line = json.dumps(row, **style)
    assert _scan_members(line) == members(line.encode())


@given(row=OBJECTS, changes=st.dictionaries(ANY_TEXT, st.none() | VALUES.filter(lambda value: value is not None)))
def test_a_splice_is_an_update(row: dict[str, Any], changes: dict[str, Any]) -> None:
    spliced = splice(json.dumps(row).encode(), {k: None if v is None else encode(v) for k, v in changes.items()})
    expected = {**row, **changes}
    assert json.loads(spliced) == {
        key: value for key, value in expected.items() if value is not None or key not in changes
    }


@given(text=ANY_TEXT)
def test_any_text_is_encoded_as_json_on_one_line(text: str) -> None:
    assert json.loads(encode_text(text)) == text
    assert b"\n" not in encode_text(text)
