"""The tokens that a reply reports."""

import pytest

from gym_ray.outcomes.usage import total_tokens


@pytest.mark.parametrize(
    ("body", "tokens"),
    [
        (b'{"response":{"usage":{"input_tokens":1,"total_tokens":30}},"reward":1}', 30),
        (b'{"usage":{"total_tokens":100}}', 100),
        (b'{"response":{"usage":null},"usage":{"total_tokens":7}}', 7),
        (b'{"response":{"usage":{"total_tokens":1}},"usage":{"total_tokens":7}}', 1),
        (b'{"reward":1}', None),
        (b'{"response":"text"}', None),
        (b'{"usage":{"total_tokens":"many"}}', None),
        (b"[1]", None),
        (b"", None),
        (b"[" * 5000, None),
    ],
)
def test_the_tokens_of_a_reply(body: bytes, tokens: int | None) -> None:
    assert total_tokens(body) == tokens
