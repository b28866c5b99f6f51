"""A deployment that costs little: head server and one environment server on one port, in one process.

Raw asyncio protocol with prepared replies, so that two cores measure the collector and not its server. Start it with
`python -m benchmarks.server --port 0`; it prints `listening on PORT`.

    GET  /global_config_dict_yaml   the merged config, with this process as its only environment server
    POST /run                       waits as long as the rollout's identity says, then sends a prepared reply
    POST /aggregate_metrics         the mean reward
    GET  /stats                     what was seen: counts, peak in flight, when the first and the last rollout were here
"""

import argparse
import asyncio
import json
import re
import resource
import time
from dataclasses import asdict, dataclass
from typing import Any, cast

import orjson
import uvloop

from benchmarks.replies import reply_body

AGENT, SERVER = "bench_agent", "bench_environment_server"
_TASK = re.compile(rb'"_ng_task_index": ?(\d+)')
_ROLLOUT = re.compile(rb'"_ng_rollout_index": ?(\d+)')
BACKLOG = 8192
"""Connections that may wait to be accepted: a collector opens thousands at once."""


@dataclass
class Stats:
    """What this server saw. Instants are monotonic seconds, which all processes of a machine share."""

    runs: int = 0
    in_flight: int = 0
    peak_in_flight: int = 0
    connections: int = 0
    disconnected: int = 0
    aggregations: int = 0
    aggregated: int = 0
    first_run_at: float | None = None
    last_run_at: float | None = None
    longest_s: float = 0.0
    cpu_s: float = 0.0
    """CPU seconds of this process since it listens, as of the last look."""


@dataclass(frozen=True)
class Options:
    """How `/run` behaves."""

    reply_bytes: int
    min_latency_s: float
    max_latency_s: float


class Service:
    """What the connections share."""

    def __init__(self, options: Options, port: int) -> None:
        self.options = options
        self.port = port
        self.stats = Stats()
        self._cpu_at_start_s = time.process_time()
        self.replies = [_response(reply_body(options.reply_bytes, reward)) for reward in (0.0, 1.0)]

    def latency_s(self, task: int, rollout: int) -> float:
        """Spread evenly over the range, and the same for a rollout whoever sends it."""
        fraction = ((task * 2654435761 + rollout * 40503) & 0xFFFFFF) / 0x1000000
        return self.options.min_latency_s + fraction * (self.options.max_latency_s - self.options.min_latency_s)

    def config(self) -> dict[str, Any]:
        """The merged config that the head publishes."""
        address = {"entrypoint": "app.py", "host": "127.0.0.1", "port": self.port}
        return {
            "head_server": {"host": "127.0.0.1", "port": self.port},
            AGENT: {"responses_api_agents": {"bench": address}},
            SERVER: {
                "environment_servers": {
                    "legacy_agent": {**address, "agent_server": {"type": "responses_api_agents", "name": AGENT}}
                }
            },
        }

    def answer(self, target: bytes, body: bytes) -> bytes:
        """The response to anything but `/run`."""
        match target:
            case b"/global_config_dict_yaml":
                # JSON is YAML; the text itself is sent as a JSON string
                return _response(orjson.dumps(json.dumps(self.config())))
            case b"/stats":
                self.stats.cpu_s = time.process_time() - self._cpu_at_start_s
                return _response(orjson.dumps(asdict(self.stats)))
            case b"/aggregate_metrics":
                return _response(self._aggregate(body))
            case b"/server_instances":
                return _response(b"[]")
            case b"/" | b"/health" | b"/healthz" | b"/livez" | b"/readyz":
                return _response(b'{"status": "ok"}')
        return _response(b'{"detail": "Not Found"}', b"404 Not Found")

    def _aggregate(self, body: bytes) -> bytes:
        responses = orjson.loads(body)["verify_responses"]
        self.stats.aggregations += 1
        self.stats.aggregated += len(responses)
        mean = sum(response["reward"] for response in responses) / max(len(responses), 1)
        metrics = {"mean/reward": mean}
        return orjson.dumps(
            {
                "agent_metrics": metrics,
                "key_metrics": metrics,
                "group_level_metrics": [],
                "repeat_level_metrics": [],
            }
        )


class Connection(asyncio.Protocol):
    """One client connection, without pipelining: a client sends its next request after our response."""

    __slots__ = ("_buffer", "_expected", "_service", "_transport", "_waiting")

    def __init__(self, service: Service) -> None:
        self._service = service
        self._buffer = bytearray()
        self._expected: int | None = None
        self._waiting: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is one in all but its base class
        self._service.stats.connections += 1

    def connection_lost(self, exc: Exception | None) -> None:
        if self._waiting is not None:
            self._waiting.cancel()
            self._waiting = None
            self._service.stats.in_flight -= 1
            self._service.stats.disconnected += 1

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        if self._expected is not None and len(self._buffer) < self._expected:
            return
        self._expected, request = read_request(self._buffer)
        if request is None:
            return
        self._buffer.clear()
        self._expected = None
        target, body = request
        if target == b"/run":
            self._run(body)
        else:
            self._transport.write(self._service.answer(target, body))

    def _run(self, body: bytes) -> None:
        stats, now = self._service.stats, time.monotonic()
        stats.runs += 1
        stats.in_flight += 1
        stats.peak_in_flight = max(stats.peak_in_flight, stats.in_flight)
        if stats.first_run_at is None:
            stats.first_run_at = now
        task, rollout = _number(_TASK, body), _number(_ROLLOUT, body)
        latency_s = self._service.latency_s(task, rollout)
        stats.longest_s = max(stats.longest_s, latency_s)
        reply = self._service.replies[task % 2]
        if latency_s > 0:
            self._waiting = asyncio.get_running_loop().call_later(latency_s, self._reply, reply)
        else:
            self._reply(reply)

    def _reply(self, reply: bytes) -> None:
        self._waiting = None
        stats = self._service.stats
        stats.in_flight -= 1
        stats.last_run_at = time.monotonic()
        self._transport.write(reply)


def read_request(buffer: bytearray) -> tuple[int | None, tuple[bytes, bytes] | None]:
    """The length of the request if its head says so, and the request once it is whole: its target and its body."""
    end = buffer.find(b"\r\n\r\n")
    if end < 0:
        return None, None
    head = bytes(buffer[:end])
    target = head.split(b" ", 2)[1]
    headers = head.lower()
    if b"transfer-encoding: chunked" in headers:
        if not buffer.endswith(b"\r\n0\r\n\r\n"):
            return None, None
        return None, (target, _unchunked(bytes(buffer[end + 4 :])))
    found = re.search(rb"content-length: *(\d+)", headers)
    length = end + 4 + (int(found[1]) if found else 0)
    if len(buffer) < length:
        return length, None
    return length, (target, bytes(buffer[end + 4 : length]))


def _unchunked(raw: bytes) -> bytes:
    parts: list[bytes] = []
    position = 0
    while True:
        line_end = raw.index(b"\r\n", position)
        size = int(raw[position:line_end].split(b";")[0], 16)
        if size == 0:
            return b"".join(parts)
        parts.append(raw[line_end + 2 : line_end + 2 + size])
        position = line_end + 4 + size


def _number(pattern: re.Pattern[bytes], body: bytes) -> int:
    found = pattern.search(body)
    return int(found[1]) if found else 0


def _response(body: bytes, status: bytes = b"200 OK") -> bytes:
    return b"HTTP/1.1 %b\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b" % (status, len(body), body)


async def serve(options: Options, port: int) -> None:
    """Serve on loopback until cancelled; prints the port once it listens."""
    loop = asyncio.get_running_loop()
    service = Service(options, port)
    server = await loop.create_server(lambda: Connection(service), "127.0.0.1", port, backlog=BACKLOG)
    service.port = server.sockets[0].getsockname()[1]
    print(f"listening on {service.port}", flush=True)
    async with server:
        await server.serve_forever()


def main() -> None:
    """Parse the flags and serve."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--reply-bytes", type=int, default=1000)
    parser.add_argument("--latency-s", type=float, nargs=2, default=(0.0, 0.0), metavar=("MIN", "MAX"))
    args = parser.parse_args()
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    uvloop.run(serve(Options(args.reply_bytes, *args.latency_s), args.port))


if __name__ == "__main__":
    main()
