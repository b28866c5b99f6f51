"""A shard: runs leases against environment servers and hands over finished records. Holds no durable state.

Invariant: every lease ends in exactly one completion unless its run is cancelled; whatever goes wrong inside an
attempt, our own bugs included, is written into its record.
"""

import asyncio
import time

from gym_ray.actors.descriptors import make_room
from gym_ray.actors.spec import ShardSpec
from gym_ray.dispatch.admission import Lease
from gym_ray.dispatch.exchange import CompletionHeader, StepAnswer, StepRequest
from gym_ray.dispatch.loop import ShardLoop
from gym_ray.environment.client import EnvironmentClient
from gym_ray.environment.requests import run_body
from gym_ray.identity import RowIdentity, read_identity
from gym_ray.outcomes.judge import internal_fault, judge
from gym_ray.outcomes.outcome import Outcome
from gym_ray.outcomes.reply import Answered, Unanswered


class Shard:
    """One dispatching process; make it inside a running event loop, and `aclose` it."""

    def __init__(self, spec: ShardSpec) -> None:
        make_room(spec.max_connections)
        self._spec = spec
        self._client = EnvironmentClient(retry_requests=spec.retry_requests, retry_budget_s=spec.retry_budget_s)
        self._loop = ShardLoop(self._execute)

    async def step(self, request: StepRequest) -> StepAnswer:
        """See `ShardLoop.step`."""
        return await self._loop.step(request)

    async def nudge(self) -> None:
        """Have the open `step` answer at once."""
        self._loop.nudge()

    async def aclose(self) -> None:
        """Cancel what still runs, which closes its connections, then close the idle ones."""
        await self._loop.aclose()
        await self._client.aclose()

    async def _execute(self, lease: Lease) -> tuple[CompletionHeader, bytes]:
        header, started_at = lease.header, time.perf_counter()
        server = self._spec.servers[header.server]
        identity, sends = RowIdentity(), 0
        try:
            identity = read_identity(lease.line)
            body = run_body(lease.line, identity, header.attempt)
            reply: Answered | Unanswered = await self._client.post_run(
                server.base_url, body, timeout_s=self._spec.rollout_timeout_s
            )
            sends = reply.sends
            latency_ms = (time.perf_counter() - started_at) * 1000
            outcome = judge(identity, header.attempt, server, reply, header.run)
        except asyncio.CancelledError:
            raise
        except BaseException as error:  # noqa: BLE001 - a SystemExit here would hang the actor, a bug would lose a rollout
            latency_ms = (time.perf_counter() - started_at) * 1000
            outcome = internal_fault(identity, header.attempt, server, error, header.run)
        return _completion(header, outcome, latency_ms, sends), outcome.record


def _completion(
    header: tuple[str, int, int, int, int], outcome: Outcome, latency_ms: float, sends: int
) -> CompletionHeader:
    run, number, attempt, _, _ = header
    return CompletionHeader(
        run=run,
        number=number,
        attempt=attempt,
        kind=int(outcome.kind),
        size=len(outcome.record),
        reply_bytes=outcome.reply_bytes,
        latency_ms=latency_ms,
        reward=outcome.reward,
        masked=outcome.masked,
        failure_class=outcome.failure_class,
        terminal=outcome.terminal,
        tokens=outcome.tokens,
        sends=sends,
    )
