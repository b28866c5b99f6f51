"""The head server: the merged config, the instances, and whether the deployment is ready.

Source: protocol §1.2, §1.7.
"""

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from aiohttp import web
from omegaconf import OmegaConf

from gym_ray.example.environment import JsonObject
from gym_ray.example.json_http import LIVENESS_ROUTES, READINESS_ROUTES, answer_ok, json_application, json_reply
from gym_ray.example.merged_config import Address, Instance


@dataclass(frozen=True, slots=True)
class _Published:
    config_text: str
    instances: Sequence[tuple[Instance, Address]]


class HeadService:
    """Serves one deployment. Until `publish`, it is alive and says that it is starting."""

    def __init__(self) -> None:
        self._published: _Published | None = None
        self._start_time = time.time()
        self._started_at = time.monotonic()

    def publish(self, config: Mapping[str, Any], instances: Sequence[tuple[Instance, Address]]) -> None:
        """Makes the deployment ready: every server in it already answers."""
        self._published = _Published(OmegaConf.to_yaml(OmegaConf.create(dict(config))), instances)

    def application(self) -> web.Application:
        """The routes; make one application for each service."""
        application = json_application()
        for route in LIVENESS_ROUTES:
            application.router.add_get(route, answer_ok)
        for route in READINESS_ROUTES:
            application.router.add_get(route, self._readiness)
        application.router.add_get("/global_config_dict_yaml", self._config)
        application.router.add_get("/server_instances", self._instances)
        return application

    async def _readiness(self, _: web.Request) -> web.Response:
        return _starting() if self._published is None else json_reply({"status": "ok"})

    async def _config(self, _: web.Request) -> web.Response:
        return _starting() if self._published is None else json_reply(self._published.config_text)

    async def _instances(self, _: web.Request) -> web.Response:
        if self._published is None:
            return _starting()
        return json_reply([self._describe(instance, address) for instance, address in self._published.instances])

    def _describe(self, instance: Instance, address: Address) -> JsonObject:
        return {
            "config_path": instance.name,
            "dir_path": None,  # nothing was installed for it
            "entrypoint": "app.py",
            "host": address.host,
            "name": instance.implementation,
            "pid": os.getpid(),
            "port": address.port,
            "process_name": instance.name,
            "server_type": instance.server_type,
            "start_time": self._start_time,
            "status": "success",
            "uptime_seconds": time.monotonic() - self._started_at,
            "url": address.url,
        }


def _starting() -> web.Response:
    return json_reply({"status": "starting"}, 503)
