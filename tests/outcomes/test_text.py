"""Text in records is bounded, encodable and without credentials."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gym_ray.outcomes.text import MAX_TEXT, bounded, excerpt, public


@given(st.text(alphabet=st.characters(), max_size=50), st.integers(0, 100))
def test_every_text_comes_out_short_and_encodable(text: str, times: int) -> None:
    cleaned = public(text * times)
    assert len(cleaned) <= MAX_TEXT
    cleaned.encode()
    assert public(cleaned) == cleaned


def test_what_is_cut_says_so() -> None:
    assert bounded("x" * MAX_TEXT) == "x" * MAX_TEXT
    assert bounded("x" * (MAX_TEXT + 1)) == "x" * (MAX_TEXT - 1) + "…"


@pytest.mark.parametrize(
    ("text", "cleaned"),
    [
        ("http://u:s3cret@h:1/run", "http://h:1/run"),
        ("http://u:s3cr@et@h:1/run", "http://h:1/run"),
        ("URL('https://s3cret@h/') and http://a:b@c", "URL('https://h/') and http://c"),
        ("http://h/run?to=me@there", "http://h/run?to=me@there"),
        ("write to me@there // or not", "write to me@there // or not"),
    ],
)
def test_credentials_of_urls_are_left_out(text: str, cleaned: str) -> None:
    assert public(text) == cleaned


@given(st.binary(max_size=30), st.integers(1, 1000))
def test_an_excerpt_is_the_start_of_a_body_of_any_bytes(body: bytes, times: int) -> None:
    text = excerpt(body * times)
    assert (text is None) == (body == b"")
    assert bounded((body * times).decode("utf-8", "replace")) == (text or "")
