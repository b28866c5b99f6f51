import pytest

from gym_ray.errors import InputError
from gym_ray.rows.document import RowDocument, parse_document
from gym_ray.rows.source_row import SourceRow


def parsed(line: bytes) -> RowDocument:
    return parse_document(SourceRow(line, "rows.jsonl", 17, 16))


def test_a_row_is_its_own_text_and_what_it_says() -> None:
    document = parsed(b' {"a": 1.10, "b": [true, null]} ')
    assert document.line == b'{"a": 1.10, "b": [true, null]}'
    assert document.values == {"a": 1.1, "b": [True, None]}


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b"", "found a blank line"),
        (b" \t", "found a blank line"),
        (b"[1]", "expected a JSON object, found a list"),
        (b'"text"', "found a string"),
        (b"5", "found a number"),
        (b"null", "found null"),
        (b"true", "found true"),
        (b'{"a": 1', "expected JSON, but"),
        (b'{"a": 1} {"b": 2}', "expected JSON, but extra data at character 10"),
        (b"{'a': 1}", "expected JSON, but"),
        (b'{"a": NaN}', "NaN is not JSON"),
        (b'{"a": -Infinity}', "-Infinity is not JSON"),
        (b'{"a": "\x01"}', "invalid control character"),
        (b'{"a": "\xff"}', "expected UTF-8, found byte 0xff at 7"),
        (b'{"a": "\xed\xa0\x80"}', "expected UTF-8"),
        (b'{"a": 1, "b": 2, "a": 3}', "the key 'a' is given twice"),
        (b'{"a": [{"b": {"c": 1, "c": 1}}]}', "the key 'c' is given twice"),
        (b'{"a": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", "nested too deeply"),
    ],
    ids=lambda value: value[:24] if isinstance(value, bytes) else None,
)
def test_what_is_not_one_json_object_is_refused_with_its_place(line: bytes, message: str) -> None:
    with pytest.raises(InputError, match=r"^rows\.jsonl:17: ") as caught:
        parsed(line)
    assert message in str(caught.value)


def test_integers_of_any_size_and_lone_surrogates_are_taken() -> None:
    digits = b"9" * 5_000
    document = parsed(b'{"n": ' + digits + b', "s": "\\ud800", "\\udfff": 1}')
    assert document.values == {"n": digits.decode(), "s": "\ud800", "\udfff": 1}
    assert digits in document.line


def test_carriage_returns_between_tokens_become_blanks() -> None:
    assert parsed(b'{\r"a"\r:\r"\\r"}').line == b'{ "a" : "\\r"}'
