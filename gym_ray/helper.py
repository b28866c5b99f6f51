"""`RolloutCollectionHelper`: the calls that training loops make, served by Ray shard actors or in this process."""

import asyncio
import secrets
import threading
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, Self

from gym_ray import keys
from gym_ray.actors.backend import DriverHandle
from gym_ray.actors.routes import agent_servers
from gym_ray.actors.spec import DriverSpec, RunSpec, ShardSpec
from gym_ray.background import BackgroundLoop, BlockingIterator
from gym_ray.completions import Pair, RolloutCompletions
from gym_ray.config import Executor
from gym_ray.deployment.lookup import Deployment
from gym_ray.deployment.merged import load_deployment
from gym_ray.dispatch.deliveries import Delivery
from gym_ray.dispatch.latency import DispatchLatencyTracker
from gym_ray.drivers import WarmDrivers
from gym_ray.enrichment.enrich import Payloads
from gym_ray.errors import ConfigError
from gym_ray.identity import read_identity
from gym_ray.meanings import enriched_result, plain_result, typed_result
from gym_ray.outcomes.failure_record import is_episode_id
from gym_ray.outcomes.outcome import OutcomeKind
from gym_ray.planning.examples import preprocess_examples
from gym_ray.planning.given import GivenRow, given_rows
from gym_ray.recorded_calls import check_recording, named_for_run, recorded
from gym_ray.sessions import DriverSession

DEFAULT_MAX_IN_FLIGHT: Final = 1024
"""What NeMo Gym's own client allows for each server; more is an argument away."""

HeadAddress = str | Mapping[str, Any] | None


@dataclass(frozen=True, slots=True)
class ServerClient:
    """A deployment as it was when its config was read."""

    head: str | None
    deployment: Deployment

    @property
    def global_config_dict(self) -> dict[str, Any]:
        """The merged config; it holds credentials."""
        return self.deployment.config


class RolloutCollectionHelper:
    """Dispatches rows that the caller holds. Keeps its actors warm from call to call; `aclose` ends them.

    Args:
        executor: `ray`, or `local` to dispatch in this process; the semantics are the same.
        shards: shard actors.
        max_in_flight: rollouts in flight over all calls of this helper.
        deployment: use this deployment instead of asking a head server.
        reuse_server_client: read the config once for each head address instead of once for each call. Make a new helper
            when the config behind an address changes.
        ray_address: the cluster to join; default RAY_ADDRESS, else a local one.
    """

    def __init__(
        self,
        *,
        executor: Executor = "ray",
        shards: int = 2,
        max_in_flight: int = DEFAULT_MAX_IN_FLIGHT,
        deployment: Deployment | None = None,
        reuse_server_client: bool = False,
        ray_address: str | None = None,
    ) -> None:
        self._executor = executor
        self._shards = shards
        self._max_in_flight = max_in_flight
        self._given = deployment
        self._reuses = reuse_server_client
        self._ray_address = ray_address
        self._client: ServerClient | None = None
        self._drivers = WarmDrivers(executor, ray_address)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._calls: weakref.WeakSet[RolloutCompletions] = weakref.WeakSet()
        self._blocking: tuple[BackgroundLoop, RolloutCollectionHelper] | None = None
        self._blocking_guard = threading.Lock()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_exc: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Cancel what is in flight and end the actors that this helper started.

        Whoever still awaits a completion gets a RuntimeError. The helper may be used again.
        """
        try:
            error = RuntimeError("the helper was closed while this call was under way")
            await asyncio.gather(*[call.abort(error) for call in list(self._calls)])
            await self._drivers.aclose()
            self._loop = None
        finally:
            await asyncio.to_thread(self.close)

    def close(self) -> None:
        """End the actors that blocking calls started; for callers without an event loop."""
        with self._blocking_guard:
            blocking, self._blocking = self._blocking, None
        if blocking is not None:
            loop, twin = blocking
            try:
                loop.call(twin.aclose())
            finally:
                loop.close()

    def preprocess_examples(self, examples: Iterable[Mapping[str, Any]], **options: Any) -> list[dict[str, Any]]:
        """See `gym_ray.preprocess_examples`."""
        return preprocess_examples(examples, **options)

    def setup_server_client(self, head_server_config: HeadAddress = None) -> ServerClient:
        """The deployment behind a head server; read anew unless this helper reuses its client. Blocks while it reads.

        Args:
            head_server_config: `HOST:PORT`, or a mapping with `host` and `port`; default as in `load_deployment`.

        Raises:
            DeploymentUnreachableError, ConfigError: it cannot be read or used.
        """
        head = _address(head_server_config)
        if self._given is not None:
            return ServerClient(head, self._given)
        if self._reuses and self._client is not None and self._client.head == head:
            return self._client
        self._client = ServerClient(head, load_deployment(head=head))
        return self._client

    def run_examples(
        self,
        examples: Iterable[Mapping[str, Any]],
        head_server_config: HeadAddress = None,
        semaphore: asyncio.Semaphore | None = None,
        route_failures_to_sidecar: bool = False,
        environment_server_name: str | None = None,
        *,
        max_resident_tasks: int | None = None,
        dispatch_budget_s: float | None = None,
        drain_margin_s: float | None = None,
        latency_tracker: DispatchLatencyTracker | None = None,
        retry_requests: bool = True,
        rollout_timeout_s: float | None = None,
        enrich_results: bool = False,
        include_model_call_payloads: bool = True,
        delete_model_call_capture: bool = False,
        record_output_dir: str | Path | None = None,
        record_shard: int | str | None = None,
        record_omitted_rollouts: bool = False,
    ) -> RolloutCompletions:
        """Dispatch rows as they are; awaitables of `(row, result)` come in completion order.

        Sources are resolved and names validated in this call; nothing is sent before the iterator is used. `result` is
        exactly what `/run` returned. A failed `/run` raises from its awaitable, or with `route_failures_to_sidecar`
        becomes a result with `_ng_failure_*` fields. `row` is a copy with its routing stamps.

        Args:
            semaphore: bounds what is in flight, in the order of the rows, together with other users of it.
            environment_server_name: bind every row to this environment server.
            max_resident_tasks: at most so many rows run, or have ended and are not claimed.
            dispatch_budget_s: start rows only in the first so many seconds; 0 starts none. A row that is not started
                resolves to a result with `_ng_dispatch_drained`.
            drain_margin_s: start none in the last seconds of the budget; default: learned from durations.
            latency_tracker: gets the duration of every row that has a result, and counts those that were drained.
            retry_requests: replay a request that may have been delivered.
            rollout_timeout_s: wall-clock limit of one rollout.
            enrich_results: return what a collection records, on copies of the rows that name this call's run: validated
                results with their identity stamps; with `route_failures_to_sidecar` a failed `/run` is a typed
                `RolloutFailureRecord`. Rows without an identity keep the plain dispatch.
                Where the deployment captures model calls (`observability_enabled`), results hold them
                (`ng_model_call_capture`), with the trajectory and the performance derived from them.
            include_model_call_payloads: keep request and response bodies of captured calls.
            delete_model_call_capture: remove a rollout's capture file once it is merged; needs the bodies kept.
            record_output_dir, record_shard: also write each rollout into this folder, as `rollouts-<shard>.jsonl` with
                its sidecar, its materialized inputs, its manifest and its status; a run with these materialized inputs
                as input and `--resume` continues it. Implies `enrich_results`. A rollout is recorded once.
            record_omitted_rollouts: a sidecar row for rollouts that end without a record, too.

        Raises:
            InputError, RoutingError: rows are wrong; all of them are listed.
            ConfigError: an argument is wrong, or not served.
            RunFolderError, RecordingError: the shard cannot take these rows.
        """
        check_recording(record_output_dir, record_shard, record_omitted_rollouts=record_omitted_rollouts)
        if delete_model_call_capture and not include_model_call_payloads:
            raise ConfigError(
                "delete_model_call_capture needs include_model_call_payloads: nothing would be left of them"
            )
        client = self.setup_server_client(head_server_config)
        rows = given_rows(examples, client.deployment, environment_server_name=environment_server_name)
        spec = RunSpec(
            run_id=secrets.token_hex(8),
            agent_servers=agent_servers(client.deployment),
            deliver=True,
            is_plain=True,
            is_open_ended=True,
            aggregate=False,
            retry_requests=retry_requests,
            rollout_timeout_s=rollout_timeout_s,
            dispatch_budget_s=dispatch_budget_s,
            drain_margin_s=drain_margin_s,
        )
        planned = None
        if enrich_results or record_output_dir is not None:
            run_id = secrets.token_hex(4)
            payloads: Payloads = "keep" if include_model_call_payloads else "drop"
            spec = replace(spec, enrichment=(payloads, delete_model_call_capture))
            if record_output_dir is not None and record_shard is not None:
                rows, spec, planned = recorded(
                    rows, spec, record_output_dir, record_shard, client.deployment,
                    records_omitted=record_omitted_rollouts, routes=route_failures_to_sidecar,
                )  # fmt: skip
            else:
                spec = replace(spec, is_plain=False, is_enriched=True)
                rows = [named_for_run(given, run_id) for given in rows]
        identities = [read_identity(given.line) for given in rows]

        def meaning(position: int, delivery: Delivery) -> Any:
            identity = identities[position]
            if spec.is_plain or (spec.is_enriched and identity.own_id is None):
                return plain_result(delivery, identity, routes=route_failures_to_sidecar)
            run_id = str(rows[position].row[keys.RUN_ID])
            return enriched_result(delivery, run_id, routes=route_failures_to_sidecar)

        tracked = _tracked(meaning, latency_tracker)
        return self._completions(client, spec, rows, tracked, max_resident_tasks, semaphore, planned)

    def run_examples_blocking(
        self, examples: Iterable[Mapping[str, Any]], head_server_config: HeadAddress = None, **arguments: Any
    ) -> BlockingIterator[Pair]:
        """`run_examples` for code without an event loop: yields `(row, result)` in completion order.

        Takes the arguments of `run_examples`, except `semaphore`. Actors stay warm until `close`. They are served by a
        loop of this helper's own, so it works in a notebook too. A failed `/run` is raised from `next`, and the next
        one goes on behind it. Closing the iterator cancels what is in flight.
        """
        return self._blocked("run_examples", examples, head_server_config, **arguments)

    def run_outcomes_blocking(
        self, examples: Iterable[Mapping[str, Any]], head_server_config: HeadAddress = None, **arguments: Any
    ) -> BlockingIterator[Pair]:
        """`run_outcomes` for code without an event loop; see `run_examples_blocking`."""
        return self._blocked("run_outcomes", examples, head_server_config, **arguments)

    def _blocked(self, call: str, *args: Any, **arguments: Any) -> BlockingIterator[Pair]:
        if "semaphore" in arguments:
            raise ConfigError("semaphore: belongs to an event loop, which a blocking call has none of")
        with self._blocking_guard:
            if self._blocking is None:
                twin = RolloutCollectionHelper(
                    executor=self._executor,
                    shards=self._shards,
                    max_in_flight=self._max_in_flight,
                    deployment=self._given,
                    reuse_server_client=self._reuses,
                    ray_address=self._ray_address,
                )
                self._blocking = BackgroundLoop(), twin
            loop, twin = self._blocking
        completions: RolloutCompletions = getattr(twin, call)(*args, **arguments)  # refuses wrong rows at once
        return BlockingIterator(loop, completions)

    def run_outcomes(
        self,
        examples: Iterable[Mapping[str, Any]],
        head_server_config: HeadAddress = None,
        semaphore: asyncio.Semaphore | None = None,
        environment_server_name: str | None = None,
        *,
        run_id: str | None = None,
        max_resident_tasks: int | None = None,
        dispatch_budget_s: float | None = None,
        drain_margin_s: float | None = None,
        latency_tracker: DispatchLatencyTracker | None = None,
        retry_requests: bool = True,
        rollout_timeout_s: float | None = None,
        **not_served: Any,
    ) -> RolloutCompletions:
        """As `run_examples`, but every outcome is a value: `(row, result dict | RolloutFailureRecord)`.

        Results are validated and carry their identity stamps. Rows need a stable identity: call `preprocess_examples`
        first, or give each an explicit `_ng_rollout_id`. Nothing is persisted.

        Args:
            run_id: names the run on every returned row; default the stamp that a row has, else one id for this call.
        """
        _refuse(not_served)
        client = self.setup_server_client(head_server_config)
        rows = given_rows(examples, client.deployment, environment_server_name=environment_server_name)
        own_run_id = run_id or secrets.token_hex(8)
        for position, given in enumerate(rows):
            own_id = read_identity(given.line).own_id
            if own_id is None or not is_episode_id(own_id):
                raise ConfigError(
                    f"rows[{position}]: run_outcomes needs _ng_task_index and _ng_rollout_index, or an _ng_rollout_id "
                    f"without an attempt suffix, found {own_id!r}: call preprocess_examples first"
                )
            if run_id is not None or keys.RUN_ID not in given.row:
                given.row[keys.RUN_ID] = own_run_id
        ids = [str(given.row[keys.RUN_ID]) for given in rows]

        def meaning(position: int, delivery: Delivery) -> Any:
            return typed_result(delivery, ids[position])

        spec = RunSpec(
            run_id=secrets.token_hex(8),
            agent_servers=agent_servers(client.deployment),
            deliver=True,
            is_open_ended=True,
            aggregate=False,
            retry_requests=retry_requests,
            rollout_timeout_s=rollout_timeout_s,
            dispatch_budget_s=dispatch_budget_s,
            drain_margin_s=drain_margin_s,
        )
        tracked = _tracked(meaning, latency_tracker)
        return self._completions(client, spec, rows, tracked, max_resident_tasks, semaphore)

    def _completions(
        self,
        client: ServerClient,
        spec: RunSpec,
        rows: list[GivenRow],
        meaning: Any,
        max_resident_tasks: int | None,
        semaphore: asyncio.Semaphore | None,
        planned: Sequence[tuple[int, int]] | None = None,
    ) -> RolloutCompletions:
        if max_resident_tasks is not None and max_resident_tasks < 1:
            raise ConfigError(f"max_resident_tasks must be at least 1, found {max_resident_tasks}")
        servers = tuple(client.deployment.environment_servers.values())
        capture_dir = client.deployment.model_call_capture_dir

        async def driver() -> DriverHandle:
            return await self._driver(servers, capture_dir)

        lines = [given.line for given in rows]
        session = DriverSession(driver, spec, lines, meaning, planned, self._drivers.let_go_of)
        completions = RolloutCompletions(
            [given.row for given in rows], session, max_resident=max_resident_tasks, semaphore=semaphore
        )
        self._calls.add(completions)
        return completions

    async def _driver(self, servers: tuple[Any, ...], capture_dir: str | None) -> DriverHandle:
        """The warm driver for these servers; the first call starts it."""
        loop = asyncio.get_running_loop()
        if self._loop is not None and self._loop is not loop:
            raise RuntimeError(
                "this helper was started in another event loop: close it there (aclose), use one helper for each loop, "
                "or call run_examples_blocking"
            )
        self._loop = loop
        processes = 1 if self._executor == "local" else self._shards
        shard = ShardSpec(
            servers=servers,
            retry_budget_s=None,
            max_connections=-(-self._max_in_flight // processes),
            capture_dir=capture_dir,
        )
        spec = DriverSpec(shard=shard, shards=self._shards, cap=self._max_in_flight)
        return await self._drivers.get((servers, capture_dir), lambda: spec)


Meaning = Callable[[int, Delivery], Any]


def _tracked(meaning: Meaning, tracker: DispatchLatencyTracker | None) -> Meaning:
    """The same, with durations told to a tracker."""
    if tracker is None:
        return meaning

    def tracked(position: int, delivery: Delivery) -> Any:
        if delivery.header.kind == OutcomeKind.RESULT:
            tracker.record(delivery.header.latency_ms / 1000)
        elif delivery.header.kind == OutcomeKind.WITHHELD:
            tracker.record_drained()
        return meaning(position, delivery)

    return tracked


def _address(head: HeadAddress) -> str | None:
    if head is None or isinstance(head, str):
        return head
    if "host" not in head or "port" not in head:
        raise ConfigError(f"head_server_config: expected host and port, found {', '.join(head) or 'nothing'}")
    return f"{head['host']}:{head['port']}"


def _refuse(arguments: Mapping[str, Any]) -> None:
    if arguments:
        raise ConfigError(f"{', '.join(sorted(arguments))}: not served by this version of gym_ray; nothing was sent")
