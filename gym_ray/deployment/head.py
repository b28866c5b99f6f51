"""Reads the merged config from a head server: one blocking GET with a deadline.

Source: protocol §1.1-1.3. The text may hold credentials, so no message here quotes any of it.
"""

import http.client
import json
import time
from dataclasses import dataclass
from urllib.parse import urlsplit

from gym_ray.deployment.addresses import connectable
from gym_ray.errors import ConfigError, DeploymentUnreachableError

DEFAULT_HOST = "127.0.0.1"
DEFAULT_PORT = 11000
PATH = "/global_config_dict_yaml"
TIMEOUT_S = 10.0
"""A head answers from memory; one that needs longer is not going to."""
MAX_BYTES = 256 * 2**20
"""A merged config has kilobytes; beyond this it is something else that answers."""


@dataclass(frozen=True, slots=True)
class HeadAddress:
    """Where a head server listens."""

    host: str = DEFAULT_HOST
    port: int = DEFAULT_PORT

    @classmethod
    def parse(cls, text: str) -> "HeadAddress":
        """Reads `HOST:PORT`, `HOST`, `[IPv6]:PORT`, each also behind `http://`; a wildcard host becomes loopback.

        Raises:
            ConfigError: none of these.
        """
        try:
            parts = urlsplit(text if "://" in text else f"//{text}")
            host, port = parts.hostname, parts.port
        except ValueError as error:
            raise ConfigError(f"head: expected HOST:PORT, found {text!r} ({error})") from None
        if not host or parts.scheme not in {"", "http"} or parts.path not in {"", "/"} or parts.query or parts.username:
            raise ConfigError(f"head: expected HOST:PORT, found {text!r}")
        return cls(connectable(host), DEFAULT_PORT if port is None else port)

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def url(self) -> str:
        return f"http://{self}"


def fetch_config_text(head: HeadAddress, timeout_s: float = TIMEOUT_S) -> str:
    """The YAML text that the head publishes.

    Raises:
        DeploymentUnreachableError: no answer in time, not status 200, or not a JSON string.
    """
    where = head.url + PATH
    try:
        status, body = _get(head, timeout_s)
    except (OSError, http.client.HTTPException) as error:
        reason = str(error) or type(error).__name__
        raise DeploymentUnreachableError(
            f"{where}: the head server does not answer ({reason}): start it, "
            "name another with --head HOST:PORT, or give its merged config with --deployment FILE"
        ) from None
    if status != 200:
        raise DeploymentUnreachableError(
            f"{where}: expected status 200, found {status}: is this the head server of a deployment?"
        )
    try:
        text = json.loads(body)
    except ValueError:
        text = None
    if not isinstance(text, str):
        raise DeploymentUnreachableError(
            f"{where}: expected a JSON string of YAML, found {len(body)} bytes of something else: "
            "is this the head server of a deployment?"
        )
    return text


def _get(head: HeadAddress, timeout_s: float) -> tuple[int, bytes]:
    ends_at = time.monotonic() + timeout_s
    connection = http.client.HTTPConnection(head.host, head.port, timeout=timeout_s)
    try:
        connection.request("GET", PATH, headers={"Accept": "application/json"})
        response = connection.getresponse()
        body = bytearray()
        # A socket's time limit holds for each read; the deadline holds for all of them
        while chunk := response.read1(2**16):
            body += chunk
            if time.monotonic() > ends_at:
                raise TimeoutError(f"not complete after {timeout_s:g} s")
            if len(body) > MAX_BYTES:
                raise OSError(f"more than {MAX_BYTES} bytes")
        if response.length:
            raise http.client.IncompleteRead(b"", response.length)
        return response.status, bytes(body)
    finally:
        connection.close()
