import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from gym_ray.deployment.head import HeadAddress, fetch_config_text
from gym_ray.errors import ConfigError, DeploymentUnreachableError


@contextmanager
def head(body: bytes, status: int = 200, length: int | None = None) -> Iterator[HeadAddress]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            found = self.path == "/global_config_dict_yaml"
            self.send_response(status if found else 404)
            self.send_header("content-length", str(len(body) if length is None else length))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield HeadAddress("127.0.0.1", server.server_address[1])
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_the_text_of_the_config_is_what_the_head_publishes() -> None:
    with head(json.dumps("a: ${b}\nb: ä").encode()) as address:
        assert fetch_config_text(address) == "a: ${b}\nb: ä"


@pytest.mark.parametrize(
    ("body", "status", "length", "message"),
    [
        (b"oops", 500, None, "expected status 200, found 500"),
        (b'{"a": 1}', 200, None, "expected a JSON string of YAML"),
        (b"a: 1", 200, None, "expected a JSON string of YAML"),
        (b"\xff", 200, None, "expected a JSON string of YAML"),
        (b'"a: ', 200, 100, "does not answer"),
    ],
)
def test_other_answers_are_not_a_head(body: bytes, status: int, length: int | None, message: str) -> None:
    with head(body, status, length) as address, pytest.raises(DeploymentUnreachableError, match=message):
        fetch_config_text(address)


def test_a_closed_port_is_an_error_that_says_what_to_do() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        address = HeadAddress("127.0.0.1", unused.getsockname()[1])
        with pytest.raises(DeploymentUnreachableError, match=r"http://127\.0\.0\.1:\d+/.*does not answer.*--head"):
            fetch_config_text(address)


def _serve(answer: Callable[[socket.socket, threading.Event], None]) -> tuple[HeadAddress, Callable[[], None]]:
    listener, stop = socket.create_server(("127.0.0.1", 0)), threading.Event()

    def run() -> None:
        connection, _ = listener.accept()
        with connection:
            answer(connection, stop)

    thread = threading.Thread(target=run)
    thread.start()

    def close() -> None:
        stop.set()
        thread.join()
        listener.close()

    return HeadAddress("127.0.0.1", listener.getsockname()[1]), close


def test_a_head_that_never_answers_is_given_up() -> None:
    address, close = _serve(lambda _, stop: (stop.wait(), None)[1])
    try:
        with pytest.raises(DeploymentUnreachableError, match="timed out"):
            fetch_config_text(address, timeout_s=0.05)
    finally:
        close()


def test_a_head_that_drips_is_given_up() -> None:
    def drip(connection: socket.socket, stop: threading.Event) -> None:
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n")
        try:
            while not stop.wait(0.01):
                connection.sendall(b"x")
        except OSError:
            pass

    address, close = _serve(drip)
    try:
        with pytest.raises(DeploymentUnreachableError, match=r"not complete after 0\.05 s"):
            fetch_config_text(address, timeout_s=0.05)
    finally:
        close()


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("10.0.0.5:12000", HeadAddress("10.0.0.5", 12000)),
        ("node-7", HeadAddress("node-7", 11000)),
        ("0.0.0.0:11000", HeadAddress("127.0.0.1", 11000)),
        ("[::]:5", HeadAddress("::1", 5)),
        ("[fe80::1]:5", HeadAddress("fe80::1", 5)),
        ("http://node-7:12000/", HeadAddress("node-7", 12000)),
    ],
)
def test_addresses_are_read(text: str, address: HeadAddress) -> None:
    assert HeadAddress.parse(text) == address


@pytest.mark.parametrize("text", ["", ":11000", "node:port", "node:99999", "https://node", "node:1/path", "u:p@node:1"])
def test_other_addresses_are_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="head: expected HOST:PORT"):
        HeadAddress.parse(text)


def test_an_address_is_shown_as_it_is_typed() -> None:
    assert str(HeadAddress("::1", 5)) == "[::1]:5"
    assert HeadAddress("node", 5).url == "http://node:5"
