"""JSON over aiohttp.web as NeMo Gym's servers speak it: replies, error bodies, health routes.

Source: protocol §1.2 and §1.7 (health), §2.6 (error bodies).
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable

import orjson
from aiohttp import web

from gym_ray.example.metrics import aggregate_metrics
from gym_ray.example.requests import InvalidRequest, read_records

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

LIVENESS_ROUTES = ("/", "/livez")
READINESS_ROUTES = ("/readyz", "/healthz", "/health")

_log = logging.getLogger("gym_ray.example")
_JSON = {"Content-Type": "application/json"}


def json_reply(body: object, status: int = 200) -> web.Response:
    """A reply with a JSON body."""
    return raw_reply(orjson.dumps(body), status)


def raw_reply(body: bytes, status: int = 200) -> web.Response:
    """A reply with a body that is called JSON, whether it is or not."""
    return web.Response(body=body, status=status, headers=_JSON)


def json_application() -> web.Application:
    """An application that answers errors in JSON and takes bodies of any size."""
    return web.Application(middlewares=[_errors_as_json], client_max_size=0)


def add_health_routes(application: web.Application) -> None:
    """The routes of a server that is ready as soon as it listens."""
    for route in (*LIVENESS_ROUTES, *READINESS_ROUTES):
        application.router.add_get(route, answer_ok)


async def answer_ok(_: web.Request) -> web.Response:
    """The reply of a healthy server."""
    return json_reply({"status": "ok"})


async def answer_aggregation(request: web.Request) -> web.Response:
    """The reply to `/aggregate_metrics`; computed in a thread, because large runs take seconds."""
    body = await request.read()
    return raw_reply(await asyncio.to_thread(_aggregate, body))


def _aggregate(body: bytes) -> bytes:
    return orjson.dumps(aggregate_metrics(read_records(body)))


@web.middleware
async def _errors_as_json(request: web.Request, handler: Handler) -> web.StreamResponse:
    try:
        return await handler(request)
    except InvalidRequest as invalid:
        return json_reply({"detail": invalid.detail}, 422)
    except web.HTTPException as refused:
        reply = json_reply({"detail": refused.reason}, refused.status)
        if (allowed := refused.headers.get("Allow")) is not None:
            reply.headers["Allow"] = allowed
        return reply
    except ConnectionError:
        raise  # the client is gone: there is nobody to answer
    except Exception as fault:  # noqa: BLE001  the boundary: a handler's fault is an answer (protocol §2.6)
        _log.debug("%s %s failed: %s", request.method, request.path, type(fault).__name__)
        return json_reply(repr(fault), 500)
