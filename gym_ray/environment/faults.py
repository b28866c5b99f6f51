"""Reads delivery evidence from what a connection or aiohttp raises.

    evidence                                             delivery            kind
    no connection was had                                not_sent            transport_unreachable, or
                                                                             transport_local_resource by errno
    the kernel's counters disprove that it was taken     not_sent            transport_peer_drop
    disconnected, reset, cut in head or body             possibly_delivered  transport_peer_drop
    timed out while waiting                              possibly_delivered  transport_timeout
    what came back is not HTTP                           possibly_delivered  transport_peer_drop
    status and body came, the body cannot be decoded     delivered           agent_run_error

aiohttp's `ClientResponseError.status` is not a status of the server when the answer was no HTTP: it is never read here.
Source: protocol §4.4, §7.5.
"""

import errno
import re

import aiohttp
from aiohttp.http_exceptions import ContentEncodingError

from gym_ray import keys
from gym_ray.environment.retry import THROTTLING, Cause, Setback
from gym_ray.environment.witness import Witness
from gym_ray.outcomes.reply import Delivery, Unanswered
from gym_ray.outcomes.text import public

OURS_TO_FREE = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM, errno.EADDRNOTAVAIL})
"""Descriptors, buffers, memory and local ports: they come back when other rollouts end."""


_QUOTATION = re.compile(r"\n|b['\"]")
"""Where aiohttp's own words end and the bytes that it quotes begin."""


class ReplyTooLargeError(aiohttp.ClientPayloadError):
    """A body is larger than any that we take into memory."""


class UndecodableReplyError(aiohttp.ClientPayloadError):
    """A body is not what its Content-Encoding says."""


class NotHTTPError(aiohttp.ClientError):
    """What came back is not HTTP, or not what HTTP allows."""


def read_fault(error: Exception, witness: Witness | None, status: int | None, url: str) -> Setback:
    """What `error` says about a request; `status` is that of the answer, if its head arrived."""
    cause, delivery, kind = _read(error, witness, status)
    return Setback(cause, delivery, Unanswered(delivery, kind, type(error).__name__, _describe(error), url, status))


def _read(error: Exception, witness: Witness | None, status: int | None) -> tuple[Cause, Delivery, str]:
    if witness is None:
        return _read_missing_connection(error)
    if _stems_from_decoding(error):
        return Cause.FINAL, Delivery.DELIVERED, keys.AGENT_RUN_ERROR
    if isinstance(error, NotHTTPError | aiohttp.ClientResponseError):
        return Cause.FINAL, Delivery.POSSIBLY_DELIVERED, keys.TRANSPORT_PEER_DROP
    if status is not None:
        return _read_broken_body(error, status)
    if witness.disproves_delivery:
        cause = Cause.STALE if witness.requests > 1 else Cause.DROPPED
        return cause, Delivery.NOT_SENT, keys.TRANSPORT_PEER_DROP
    return _read_drop(error)


def _read_missing_connection(error: Exception) -> tuple[Cause, Delivery, str]:
    if isinstance(error, aiohttp.InvalidURL | aiohttp.NonHttpUrlClientError):
        return Cause.FINAL, Delivery.NOT_SENT, keys.TRANSPORT_UNREACHABLE
    if not OURS_TO_FREE.isdisjoint(_errnos(error)):
        return Cause.LOCAL_RESOURCE, Delivery.NOT_SENT, keys.TRANSPORT_LOCAL_RESOURCE
    return Cause.UNREACHABLE, Delivery.NOT_SENT, keys.TRANSPORT_UNREACHABLE


def _read_broken_body(error: Exception, status: int) -> tuple[Cause, Delivery, str]:
    cause, delivery, kind = _read_drop(error)
    if status in THROTTLING:
        cause = Cause.THROTTLED
    elif not 200 <= status < 300:
        cause = Cause.FINAL
    return cause, delivery, kind


def _read_drop(error: Exception) -> tuple[Cause, Delivery, str]:
    if isinstance(error, TimeoutError) or errno.ETIMEDOUT in _errnos(error):
        return Cause.TIMEOUT, Delivery.POSSIBLY_DELIVERED, keys.TRANSPORT_TIMEOUT
    return Cause.DROPPED, Delivery.POSSIBLY_DELIVERED, keys.TRANSPORT_PEER_DROP


def _errnos(error: BaseException) -> set[int | None]:
    return {link.errno for link in _chain(error) if isinstance(link, OSError)}


def _stems_from_decoding(error: BaseException) -> bool:
    """True if a body arrived that cannot be taken, of which another try would bring the same."""
    unusable = ContentEncodingError, UndecodableReplyError, ReplyTooLargeError
    return any(isinstance(link, unusable) for link in _chain(error))


def _describe(error: Exception) -> str:
    """What went wrong in words; parts of a reply's head, which aiohttp quotes, stay out."""
    if isinstance(error, aiohttp.ServerDisconnectedError) and not isinstance(error.message, str):
        return "the server disconnected in the head of its reply"
    if isinstance(error, aiohttp.ClientResponseError):
        return public(f"the reply is not usable HTTP: {_QUOTATION.split(error.message, maxsplit=1)[0].strip(' :')}")
    return public(str(error) or repr(error))


def _chain(error: BaseException | None) -> list[BaseException]:
    """The error and what it was raised from, directly or while handling."""
    links: list[BaseException] = []
    while error is not None and error not in links:
        links.append(error)
        error = error.__cause__ or error.__context__
    return links
