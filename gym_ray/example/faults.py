"""Carries out the faults that a profile draws."""

from aiohttp import web

from gym_ray.example.profile import Fault


def status_body(fault: Fault) -> object:
    """The body of an error status: the text of an exception for 500, as the servers themselves send it."""
    if fault.status == 500:
        return repr(RuntimeError("fault drawn by the profile"))
    return {"detail": f"{fault.status} drawn by the profile"}


def half_of(body: bytes) -> bytes:
    """The first half, which is no JSON any more."""
    return body[: len(body) // 2]


def drop_connection(request: web.Request) -> web.StreamResponse:
    """Closes the connection; what is returned reaches nobody."""
    if request.transport is not None:
        request.transport.abort()
    return web.Response()


async def cut_reply(request: web.Request, body: bytes) -> web.StreamResponse:
    """Promises the whole body, sends half of it and closes the connection."""
    reply = web.StreamResponse(headers={"Content-Type": "application/json", "Content-Length": str(len(body))})
    await reply.prepare(request)
    await reply.write(half_of(body))
    if request.transport is not None:
        request.transport.close()  # unlike abort(), after the bytes are out
    return reply
