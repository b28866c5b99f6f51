from hypothesis import given
from hypothesis import strategies as st

from gym_ray.planning.digest_index import DIGEST_BYTES, DigestIndex

# Few values for each half, so that halves repeat and slots collide
DIGESTS = st.builds(
    lambda left, right: left.to_bytes(8, "little") + right.to_bytes(8, "little"),
    st.sampled_from([0, 1, 1024, 2048, 2**63]),
    st.integers(0, 3),
)


@given(digests=st.lists(DIGESTS, max_size=60))
def test_numbers_count_up_in_order_of_first_sight(digests: list[bytes]) -> None:
    index, expected = DigestIndex(), dict[bytes, int]()
    for digest in digests:
        assert index.number(digest) == expected.setdefault(digest, len(expected))
    assert len(index) == len(expected)


def test_numbers_stay_when_the_table_grows() -> None:
    index = DigestIndex()
    digests = [(number * 7919).to_bytes(DIGEST_BYTES, "little") for number in range(10_000)]
    assert [index.number(digest) for digest in digests] == list(range(10_000))
    assert [index.number(digest) for digest in digests] == list(range(10_000))
