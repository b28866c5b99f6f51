"""A shard: runs leases against environment servers and hands over finished records. Holds no durable state.

Invariant: every lease ends in exactly one completion unless its run is cancelled; whatever goes wrong inside an
attempt, our own bugs included, is written into its record.
"""

import asyncio
import logging
import time
from dataclasses import replace
from pathlib import Path

from gym_ray import keys
from gym_ray.actors.behaviour import Behaviour
from gym_ray.actors.descriptors import make_room
from gym_ray.actors.spec import ShardSpec
from gym_ray.dispatch.admission import Lease
from gym_ray.dispatch.exchange import CompletionHeader, LeaseHeader, StepAnswer, StepRequest
from gym_ray.dispatch.loop import ShardLoop
from gym_ray.enrichment.capture_files import delete_capture_files, read_capture_file
from gym_ray.enrichment.enrich import Enrichment, enriched
from gym_ray.environment.client import EnvironmentClient
from gym_ray.environment.requests import run_body
from gym_ray.identity import RowIdentity, capture_key, read_identity
from gym_ray.outcomes.judge import internal_fault, judge
from gym_ray.outcomes.outcome import Outcome, OutcomeKind
from gym_ray.outcomes.reply import Answered, Unanswered
from gym_ray.outcomes.usage import total_tokens

logger = logging.getLogger("gym_ray.shard")

_NO_RESULT = frozenset({keys.AGENT_REQUEST_FAILED, keys.AGENT_RUN_ERROR, keys.ENVIRONMENT_SERVER_FAILED})
"""Classes of failures that nothing can be told of."""


class Shard:
    """One dispatching process; make it inside a running event loop, and `aclose` it."""

    def __init__(self, spec: ShardSpec) -> None:
        make_room(spec.max_connections, spec.wanted_connections)
        self._spec = spec
        self._clients = {
            retry: EnvironmentClient(retry_requests=retry, retry_budget_s=spec.retry_budget_s)
            for retry in (True, False)
        }
        self._loop = ShardLoop(self._execute)
        self._behaviour = Behaviour()

    async def step(self, request: StepRequest) -> StepAnswer:
        """See `ShardLoop.step`; the answer also says how the servers behaved since the last one."""
        answer = await self._loop.step(request)
        signals = self._behaviour.drain()
        return replace(answer, signals=signals) if signals else answer

    async def stacks(self) -> list[str]:
        """Where the attempts in flight wait; see `ShardLoop.stacks`."""
        return self._loop.stacks()

    async def nudge(self) -> None:
        """Have the open `step` answer at once."""
        self._loop.nudge()

    @property
    def node(self) -> str | None:
        """Where it runs is not its business."""
        return None

    async def kill(self) -> None:
        """As `aclose`: in this process nothing ends sooner."""
        await self.aclose()

    async def aclose(self) -> None:
        """Cancel what still runs, which closes its connections, then close the idle ones."""
        await self._loop.aclose()
        for client in self._clients.values():
            await client.aclose()

    def _clear_captures(self, identity: RowIdentity, attempt: int) -> None:
        """What was captured under this number belongs to a try that has left no record."""
        if identity.own_id is not None and self._spec.capture_dir is not None:
            delete_capture_files(Path(self._spec.capture_dir), capture_key(identity.own_id, attempt))

    def _enriched(self, outcome: Outcome, lease: Lease, identity: RowIdentity, latency_ms: float) -> Outcome:
        """The outcome with its record enriched; as it is if that fails, for a record must not be lost for it."""
        directory, header = self._spec.capture_dir, lease.header
        if identity.own_id is None or header.enrichment is None:
            return outcome
        enrichment = Enrichment(*header.enrichment)  # type: ignore[arg-type]  # what `RunSpec` allows
        key = capture_key(identity.own_id, header.attempt)
        try:
            captured = None if directory is None else read_capture_file(Path(directory), key)
            record = enriched(outcome.record, lease.line, identity, key, captured, latency_ms, enrichment.payloads)
            if directory is not None and enrichment.deletes:
                delete_capture_files(Path(directory), key)
        except Exception as error:  # noqa: BLE001 - see above
            logger.warning(
                "rollout %s is recorded without its captured calls: %s: %s", key, type(error).__name__, error
            )
            return outcome
        return replace(outcome, record=record, reply_bytes=0)

    async def _execute(self, lease: Lease) -> tuple[CompletionHeader, bytes]:
        header, started_at = lease.header, time.perf_counter()
        server = self._spec.servers[header.server]
        identity, sends, tokens = RowIdentity(), 0, None
        try:
            identity = read_identity(lease.line)
            body = run_body(lease.line, identity, header.attempt)
            if header.enrichment is not None and self._spec.capture_dir is not None:
                await asyncio.to_thread(self._clear_captures, identity, header.attempt)
            client = self._clients[header.retry_requests]
            watch = self._behaviour.watch(header.server)
            reply: Answered | Unanswered = await client.post_run(
                server.base_url, body, timeout_s=header.timeout_s, watch=watch
            )
            self._behaviour.ended(header.server, reply)
            sends = reply.sends
            latency_ms = (time.perf_counter() - started_at) * 1000
            if header.counts_tokens and isinstance(reply, Answered):
                tokens = total_tokens(reply.body)
            if header.is_plain and isinstance(reply, Answered) and 200 <= reply.status < 300:
                outcome = Outcome(OutcomeKind.RESULT, reply.body)
            else:
                outcome = judge(identity, header.attempt, server, reply, header.run)
                if header.enrichment is not None and _may_be_enriched(outcome, self._spec.capture_dir):
                    outcome = await asyncio.to_thread(self._enriched, outcome, lease, identity, latency_ms)
        except asyncio.CancelledError:
            raise
        except BaseException as error:  # noqa: BLE001 - a SystemExit here would hang the actor, a bug would lose a rollout
            latency_ms = (time.perf_counter() - started_at) * 1000
            outcome = internal_fault(identity, header.attempt, server, error, header.run)
        tokens = outcome.tokens if tokens is None else tokens
        return _completion(header, outcome, latency_ms, sends, tokens), outcome.record


def _may_be_enriched(outcome: Outcome, capture_dir: str | None) -> bool:
    """True if an environment has answered, and something is known beside its answer."""
    is_answered = outcome.kind == OutcomeKind.RESULT or (
        outcome.kind == OutcomeKind.FAILURE and outcome.failure_class not in _NO_RESULT
    )
    return is_answered and (capture_dir is not None or outcome.has_observations)


def _completion(
    header: LeaseHeader, outcome: Outcome, latency_ms: float, sends: int, tokens: int | None
) -> CompletionHeader:
    return CompletionHeader(
        run=header.run,
        number=header.number,
        attempt=header.attempt,
        kind=int(outcome.kind),
        size=len(outcome.record),
        reply_bytes=outcome.reply_bytes,
        latency_ms=latency_ms,
        reward=outcome.reward,
        masked=outcome.masked,
        failure_class=outcome.failure_class,
        terminal=outcome.terminal,
        tokens=tokens,
        sends=sends,
        is_interruption=outcome.is_interruption,
    )
