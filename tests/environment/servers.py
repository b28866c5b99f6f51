"""HTTP servers that do exactly what a test says, byte by byte, on loopback."""

import asyncio
import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress


class Link:
    """One accepted connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, number: int) -> None:
        self._reader, self._writer, self.number = reader, writer, number

    async def request(self) -> tuple[str, bytes]:
        """The head and the body of the next request, read in full."""
        head = (await self._reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        lower = head.lower()
        if "transfer-encoding: chunked" in lower:
            body = b""
            while size := int(await self._reader.readline(), 16):
                body += await self._reader.readexactly(size)
                await self._reader.readline()
            await self._reader.readline()
            return head, body
        length = int(lower.split("content-length:")[1].split("\r\n")[0]) if "content-length:" in lower else 0
        return head, await self._reader.readexactly(length)

    async def head(self) -> str:
        """The head of the next request; its body stays unread."""
        return (await self._reader.readuntil(b"\r\n\r\n")).decode("latin-1")

    async def send(self, raw: bytes) -> None:
        self._writer.write(raw)
        await self._writer.drain()

    async def answer(self, body: bytes = b"{}", status: str = "200 OK", headers: str = "") -> None:
        head = f"HTTP/1.1 {status}\r\n{headers}Content-Length: {len(body)}\r\n\r\n"
        await self.send(head.encode("latin-1") + body)

    async def gone(self) -> None:
        """Wait until the client has closed its side."""
        with suppress(ConnectionError):
            while await self._reader.read(1 << 16):
                pass

    def close(self) -> None:
        self._writer.close()

    def half_close(self) -> None:
        self._writer.write_eof()

    def reset(self) -> None:
        """Close so that the client gets a reset instead of an end of stream."""
        sock = self._writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._writer.transport.abort()


Behaviour = Callable[[Link], Awaitable[None]]


class Server:
    """What a test sees of a running server."""

    def __init__(self, port: int) -> None:
        self.base_url = f"http://127.0.0.1:{port}"
        self.connections = 0


@asynccontextmanager
async def serving(behaviour: Behaviour) -> AsyncIterator[Server]:
    """Runs `behaviour` once for each connection, closes the connection after it, and everything at the end."""
    tasks: set[asyncio.Task[None]] = set()
    server = Server(0)

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        link = Link(reader, writer, server.connections)
        server.connections += 1
        try:
            with suppress(asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
                await behaviour(link)
        finally:
            writer.close()

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.get_running_loop().create_task(handle(reader, writer))
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    listener = await asyncio.start_server(accept, "127.0.0.1", 0, limit=1 << 26)
    server.base_url = f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}"
    try:
        yield server
    finally:
        listener.close()
        for task in list(tasks):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.sleep(0)


def forever(respond: Behaviour) -> Behaviour:
    """A connection that is kept alive: `respond` for each request."""

    async def behaviour(link: Link) -> None:
        while True:
            await respond(link)

    return behaviour


def free_port() -> int:
    """A port at which nothing listens."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])
