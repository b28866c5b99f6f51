"""Bodies of `/run` replies: the shape of a real one, padded to a size. Built once, sent many times."""

import json
from typing import Any

ITEM_CHARS = 2000
"""Text of one output item: about one turn of an agent."""
_TEXT = 'She adds 17 and 25 and writes "42" down.\nThen she checks it: 42 - 25 = 17, as it should be. '


def reply_body(size: int, reward: float) -> bytes:
    """A reply of exactly `size` bytes, or of the smallest possible size if that is larger."""
    frame = len(_encoded(reward, []))
    items: list[str] = []
    while (missing := size - len(_encoded(reward, items))) > ITEM_CHARS * 1.2:
        items.append(_text(ITEM_CHARS))
    if size > frame:
        # The last item is plain text, in which every character is one byte
        items.append("")
        items[-1] = "y" * max(missing - (len(_encoded(reward, items)) - len(_encoded(reward, items[:-1]))), 0)
    return _encoded(reward, items)


def _text(length: int) -> str:
    return (_TEXT * (length // len(_TEXT) + 1))[:length]


def _encoded(reward: float, texts: list[str]) -> bytes:
    return json.dumps(_reply(reward, texts)).encode()


def _reply(reward: float, texts: list[str]) -> dict[str, Any]:
    output = [
        {
            "id": f"msg_{position}",
            "type": "message",
            "role": "assistant",
            "status": "completed",
            "content": [{"type": "output_text", "text": text, "annotations": []}],
        }
        for position, text in enumerate(texts)
    ]
    return {
        "reward": reward,
        "response": {
            "id": "resp_1",
            "object": "response",
            "created_at": 1700000000,
            "model": "stub",
            "output": output,
            "usage": {"input_tokens": 100, "output_tokens": 200, "total_tokens": 300},
        },
        "responses_create_params": {"input": [{"role": "user", "content": "What is 17 + 25?"}]},
    }
