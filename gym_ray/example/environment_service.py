"""An environment server: one attempt for each `POST /run`, from the request to the reply or to the client's departure.

Invariant: a request that is executed is noted in the ledger once, before its latency begins; one that is refused,
invalid or turned away at the gate is not. When the client closes the connection, the handler is cancelled and counted.

Source: protocol §2 (whole), §1.8 (`/load`).
"""

import asyncio
from collections import Counter

import orjson
from aiohttp import web
from pydantic import ValidationError

from gym_ray.example.admission import AdmissionGate, NoPlaceError
from gym_ray.example.attempt import Fate, fate_of
from gym_ray.example.environment import Environment, EnvironmentFacts, Episode, HandledFailure, JsonObject
from gym_ray.example.execution_ledger import ExecutionLedger
from gym_ray.example.faults import cut_reply, drop_connection, half_of, status_body
from gym_ray.example.json_http import add_health_routes, answer_aggregation, json_application, json_reply, raw_reply
from gym_ray.example.profile import FaultKind, Limits, Profile
from gym_ray.example.replies import failure_reply, result_reply
from gym_ray.example.requests import InvalidRequest, RunRequest, read_run_request


class EnvironmentService:
    """Serves one environment. `ledger` is closed by whoever opened it."""

    def __init__(self, environment: Environment, profile: Profile, limits: Limits, ledger: ExecutionLedger) -> None:
        self._environment = environment
        self._profile = profile
        self._limits = limits
        self._ledger = ledger
        self._gate = AdmissionGate(limits.max_concurrent_episodes, limits.queue_timeout_s)
        self._counts: Counter[str] = Counter()
        self._faults: Counter[str] = Counter()
        self._is_closing = False

    @property
    def facts(self) -> EnvironmentFacts:
        """Its names in the merged config."""
        return self._environment.facts

    def application(self) -> web.Application:
        """The routes; make one application for each service."""
        application = json_application()
        add_health_routes(application)
        application.router.add_post("/run", self._run)
        application.router.add_post("/aggregate_metrics", self._aggregate)
        application.router.add_get("/load", self._load)
        application.router.add_get("/stats", self._stats)
        application.on_shutdown.append(self._close)
        return application

    def load(self) -> dict[str, int]:
        """Episodes that wait for a place and episodes that run."""
        return {"waiting": self._gate.waiting, "running": self._gate.running}

    def stats(self) -> JsonObject:
        """What has happened since the start; `executions` are the latest, as [task, rollout, attempt]."""
        return {
            "requests": self._counts["requests"],
            "executed": self._counts["executed"],
            "in_flight": self._gate.running,
            "peak_in_flight": self._gate.peak_running,
            "waiting": self._gate.waiting,
            "turned_away": self._counts["turned_away"],
            "disconnects": self._counts["disconnects"],
            "faults": dict(self._faults),
            "aggregations": self._counts["aggregations"],
            "executions": self._ledger.executions(),
        }

    async def _run(self, request: web.Request) -> web.StreamResponse:
        self._counts["requests"] += 1
        asked = read_run_request(await request.read(), self.facts)
        episode = self._open(asked)
        fate = fate_of(asked.identity, self._profile)
        if fate.fault is not None:
            self._faults[fate.fault.name] += 1
            if fate.fault.is_refusal:
                return json_reply(status_body(fate.fault), fate.fault.status)
        try:
            async with self._gate.place():
                return await self._execute(request, asked, episode, fate)
        except NoPlaceError as full:
            self._counts["turned_away"] += 1
            if asked.echo is None:  # a flat row has no form for this failure
                return json_reply({"detail": str(full)}, 503)
            return json_reply(failure_reply(asked, HandledFailure(str(full), terminal=False, stage="admission")))
        except asyncio.CancelledError:
            if request.transport is None and not self._is_closing:
                self._counts["disconnects"] += 1
            raise

    def _open(self, asked: RunRequest) -> Episode:
        try:
            return self._environment.open(asked.prompt, asked.task)
        except ValidationError as error:
            raise InvalidRequest.of_validation(error, *asked.task_place) from None

    async def _execute(
        self, request: web.Request, asked: RunRequest, episode: Episode, fate: Fate
    ) -> web.StreamResponse:
        self._ledger.note(asked.identity)
        self._counts["executed"] += 1
        try:
            async with asyncio.timeout(self._limits.episode_timeout_s):
                await _spend(fate)
        except TimeoutError:
            late = f"the episode took longer than {self._limits.episode_timeout_s:g} s"
            return json_reply(failure_reply(asked, HandledFailure(late, terminal=False)))
        if fate.fault is not None and fate.fault.kind is FaultKind.STATUS:
            return json_reply(status_body(fate.fault), fate.fault.status)
        body = orjson.dumps(_played(asked, episode, fate))
        match fate.fault.kind if fate.fault is not None else None:
            case FaultKind.DROP:
                return drop_connection(request)
            case FaultKind.CUT:
                return await cut_reply(request, body)
            case FaultKind.BAD_JSON:
                return raw_reply(half_of(body))
            case _:
                return raw_reply(body)

    async def _aggregate(self, request: web.Request) -> web.Response:
        self._counts["aggregations"] += 1
        return await answer_aggregation(request)

    async def _load(self, _: web.Request) -> web.Response:
        return json_reply(self.load())

    async def _stats(self, _: web.Request) -> web.Response:
        return json_reply(self.stats())

    async def _close(self, _: web.Application) -> None:
        self._is_closing = True


async def _spend(fate: Fate) -> None:
    """Takes the time that the attempt takes."""
    if fate.latency_s > 0:
        await asyncio.sleep(fate.latency_s)
    if fate.fault is not None and fate.fault.kind is FaultKind.HANG:
        await asyncio.Event().wait()


def _played(asked: RunRequest, episode: Episode, fate: Fate) -> JsonObject:
    """The reply's body. An exception in an episode becomes its terminal failure; a flat row's goes up, to be a 500."""
    try:
        if fate.fault is not None and fate.fault.kind is FaultKind.HANDLED:
            raise HandledFailure(
                "the profile gives up this attempt", terminal=False, kind="agent_timeout", stage="agent"
            )
        return result_reply(asked, episode.play(asked.identity))
    except HandledFailure as failure:
        return failure_reply(asked, failure)
    except Exception as fault:
        if asked.echo is None:
            raise
        return failure_reply(asked, HandledFailure(f"{type(fault).__name__}: {fault}", terminal=True))
