"""The exceptions that an awaitable of `run_examples` raises when failures are not routed into results.

They are members of aiohttp's client error family, which callers of NeMo Gym catch, and cross processes by pickle, which
aiohttp's own do not.
"""

from collections.abc import Mapping
from typing import Any

import aiohttp
from multidict import CIMultiDict, CIMultiDictProxy
from yarl import URL

from gym_ray import keys
from gym_ray.errors import GymRayError


class RunResponseError(GymRayError, aiohttp.ClientResponseError):
    """A server answered `/run` with an error status, or with a body that is no result. Has `status` and `message`."""

    def __init__(self, message: str, status: int, url: str, response_content: bytes) -> None:
        info = aiohttp.RequestInfo(URL(url), "POST", CIMultiDictProxy(CIMultiDict()), URL(url))
        aiohttp.ClientResponseError.__init__(self, info, (), status=status, message=message)
        self.response_content = response_content
        """The beginning of the body."""

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.message, self.status, str(self.request_info.real_url), self.response_content)


class RunConnectionError(GymRayError, aiohttp.ClientConnectionError):
    """No reply to `/run` came back; `delivery` in the message says whether the request may have arrived."""


class RunTimeoutError(GymRayError, TimeoutError):
    """A rollout took longer than its time limit."""


def error_of(row: Mapping[str, Any], url: str) -> GymRayError:
    """The exception for the failure row of one rollout."""
    message = str(row.get(keys.FAILURE_MESSAGE) or row.get(keys.FAILURE_CLASS))
    status = row.get(keys.FAILURE_HTTP_STATUS)
    if isinstance(status, int):
        body = row.get(keys.FAILURE_RESPONSE_BODY) or ""
        return RunResponseError(message, status, url, str(body).encode("utf-8", "replace"))
    record = row.get(keys.FAILURE_RECORD) or {}
    if record.get("failure", {}).get(keys.FAILURE_KIND) == keys.TRANSPORT_TIMEOUT:
        return RunTimeoutError(message)
    return RunConnectionError(f"{message} (delivery: {record.get('delivery')})")
