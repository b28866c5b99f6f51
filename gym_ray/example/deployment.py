"""The whole example in one process: a head server, two environment servers, their agents and resources servers.

Invariant: when `start` has returned, every server answers and the head is ready; when `aclose` has returned, no port is
open. A start that fails leaves nothing behind.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from types import MappingProxyType

from aiohttp import web

from gym_ray.example.arithmetic import ArithmeticEnvironment
from gym_ray.example.calculator_tools import CalculatorToolsEnvironment
from gym_ray.example.component_service import component_application
from gym_ray.example.environment import Environment, JsonObject
from gym_ray.example.environment_service import EnvironmentService
from gym_ray.example.execution_ledger import NO_LEDGER, ExecutionLedger, LedgerOptions
from gym_ray.example.head_service import HeadService
from gym_ray.example.listening import Listener, listen, raise_open_files_limit
from gym_ray.example.merged_config import Address, Instance, instances_of, merged_config
from gym_ray.example.profile import PLAIN, UNLIMITED, Limits, Profile
from gym_ray.example.rows import ROW_FILES, example_rows


class ExampleDeployment:
    """Servers in the running event loop, on free ports unless the head's port is given. Start and close it once."""

    def __init__(
        self,
        profile: Profile = PLAIN,
        *,
        limits: Limits = UNLIMITED,
        ledger: LedgerOptions = NO_LEDGER,
        host: str = "127.0.0.1",
        head_port: int = 0,
    ) -> None:
        self._profile = profile
        self._limits = limits
        self._ledger = ledger
        self._host = host
        self._head_port = head_port
        self._closing = AsyncExitStack()
        self._head: Address | None = None
        self._config: JsonObject = {}
        self._services: dict[str, EnvironmentService] = {}

    @property
    def head_address(self) -> str:
        """`127.0.0.1:PORT`; known after the start."""
        return str(self._started_head())

    @property
    def head_url(self) -> str:
        """`http://127.0.0.1:PORT`; known after the start."""
        return self._started_head().url

    @property
    def config(self) -> JsonObject:
        """The merged config that the head publishes, with the real ports."""
        return self._config

    @property
    def servers(self) -> Mapping[str, EnvironmentService]:
        """The environment servers by instance name."""
        return MappingProxyType(self._services)

    async def start(self) -> None:
        """Brings every server up.

        Raises:
            gym_ray.errors.ConfigError: the host or the head's port cannot be bound.
        """
        raise_open_files_limit()
        async with AsyncExitStack() as opened:
            head = HeadService()
            head_address = (await self._listen(opened, head.application(), self._head_port)).address
            services: dict[str, EnvironmentService] = {}
            instances: list[tuple[Instance, Address]] = []
            for environment in (ArithmeticEnvironment(), CalculatorToolsEnvironment()):
                service = self._open_service(opened, environment)
                services[service.facts.server] = service
                instances += await self._start_service(opened, service)
            config = merged_config(
                [service.facts for service in services.values()],
                {instance.name: address for instance, address in instances},
                head_address,
                self._limits,
                {name: example_rows(name) for name in ROW_FILES},
            )
            head.publish(config, instances)
            self._head, self._config, self._services = head_address, config, services
            self._closing = opened.pop_all()

    async def aclose(self) -> None:
        """Takes every server down. Requests in flight get half a second, then their handlers are cancelled."""
        await self._closing.aclose()
        await asyncio.sleep(0)  # lets the cancelled handlers end

    def _open_service(self, opened: AsyncExitStack, environment: Environment) -> EnvironmentService:
        ledger = opened.enter_context(ExecutionLedger(environment.facts.server, self._ledger))
        return EnvironmentService(environment, self._profile, self._limits, ledger)

    async def _start_service(
        self, opened: AsyncExitStack, service: EnvironmentService
    ) -> list[tuple[Instance, Address]]:
        """Listens for an environment server, its agent and its resources server, in the order of `instances_of`."""
        applications = (
            service.application(),
            component_application(is_resources_server=False),
            component_application(is_resources_server=True),
        )
        listeners = [await self._listen(opened, application) for application in applications]
        return [
            (instance, listener.address)
            for instance, listener in zip(instances_of(service.facts), listeners, strict=True)
        ]

    async def _listen(self, opened: AsyncExitStack, application: web.Application, port: int = 0) -> Listener:
        listener = await listen(application, self._host, port)
        opened.push_async_callback(listener.aclose)
        return listener

    def _started_head(self) -> Address:
        if self._head is None:
            raise RuntimeError("the example deployment has no head server yet: await start() first")
        return self._head


@asynccontextmanager
async def example_deployment(
    profile: Profile = PLAIN,
    *,
    limits: Limits = UNLIMITED,
    ledger: LedgerOptions = NO_LEDGER,
    host: str = "127.0.0.1",
    head_port: int = 0,
) -> AsyncIterator[ExampleDeployment]:
    """A started deployment for the time of the block, in the running event loop."""
    deployment = ExampleDeployment(profile, limits=limits, ledger=ledger, host=host, head_port=head_port)
    await deployment.start()
    try:
        yield deployment
    finally:
        await deployment.aclose()


async def serve_forever(
    host: str,
    head_port: int,
    profile: Profile,
    *,
    on_ready: Callable[[ExampleDeployment], None],
    limits: Limits = UNLIMITED,
    ledger: LedgerOptions = NO_LEDGER,
) -> None:
    """Serves until it is cancelled, and then takes the servers down before it ends; `on_ready` is called once."""
    async with example_deployment(profile, limits=limits, ledger=ledger, host=host, head_port=head_port) as deployment:
        on_ready(deployment)
        await asyncio.Event().wait()
