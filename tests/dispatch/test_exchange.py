"""A blob gives back the items that went in, whatever a pickle does on the way."""

import pickle

from hypothesis import given
from hypothesis import strategies as st

from gym_ray.dispatch.exchange import LARGE_ITEM_BYTES, Blob, slices

items = st.lists(st.binary(max_size=40) | st.sampled_from([b"x" * LARGE_ITEM_BYTES, b"y" * (LARGE_ITEM_BYTES + 7)]))


def travelled(blob: Blob, *, out_of_band: bool) -> Blob:
    buffers: list[pickle.PickleBuffer] = []
    data = pickle.dumps(blob, 5, buffer_callback=buffers.append if out_of_band else None)
    arrived = pickle.loads(data, buffers=buffers)
    assert isinstance(arrived, Blob)
    return arrived


@given(items, st.booleans())
def test_items_come_back_whole_and_in_order(sent: list[bytes], out_of_band: bool) -> None:
    arrived = travelled(Blob(sent), out_of_band=out_of_band)
    assert [bytes(item) for item in slices(map(len, sent), arrived)] == sent
    assert [bytes(item) for item in slices(map(len, sent), Blob(sent))] == sent


def test_small_items_share_a_buffer_and_large_ones_are_not_copied() -> None:
    large = b"x" * LARGE_ITEM_BYTES
    buffers: list[pickle.PickleBuffer] = []
    pickle.dumps(Blob([b"a", b"b", large, b"c"]), 5, buffer_callback=buffers.append)
    assert [len(buffer.raw()) for buffer in buffers] == [2, LARGE_ITEM_BYTES, 1]
    assert buffers[1].raw().obj is large
