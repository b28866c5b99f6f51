"""A shard: runs leases against environment servers and hands over finished records. Holds no durable state.

Invariant: every lease ends in exactly one completion unless its run is cancelled; whatever goes wrong inside an
attempt, our own bugs included, is written into its record.
"""

import asyncio
import time

from gym_ray.actors.descriptors import make_room
from gym_ray.actors.spec import ShardSpec
from gym_ray.dispatch.admission import Lease
from gym_ray.dispatch.exchange import CompletionHeader, LeaseHeader, StepAnswer, StepRequest
from gym_ray.dispatch.loop import ShardLoop
from gym_ray.environment.client import EnvironmentClient
from gym_ray.environment.requests import run_body
from gym_ray.identity import RowIdentity, read_identity
from gym_ray.outcomes.judge import internal_fault, judge
from gym_ray.outcomes.outcome import Outcome, OutcomeKind
from gym_ray.outcomes.reply import Answered, Unanswered
from gym_ray.outcomes.usage import total_tokens


class Shard:
    """One dispatching process; make it inside a running event loop, and `aclose` it."""

    def __init__(self, spec: ShardSpec) -> None:
        make_room(spec.max_connections)
        self._spec = spec
        self._clients = {
            retry: EnvironmentClient(retry_requests=retry, retry_budget_s=spec.retry_budget_s)
            for retry in (True, False)
        }
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
        for client in self._clients.values():
            await client.aclose()

    async def _execute(self, lease: Lease) -> tuple[CompletionHeader, bytes]:
        header, started_at = lease.header, time.perf_counter()
        server = self._spec.servers[header.server]
        identity, sends, tokens = RowIdentity(), 0, None
        try:
            identity = read_identity(lease.line)
            body = run_body(lease.line, identity, header.attempt)
            client = self._clients[header.retry_requests]
            reply: Answered | Unanswered = await client.post_run(server.base_url, body, timeout_s=header.timeout_s)
            sends = reply.sends
            latency_ms = (time.perf_counter() - started_at) * 1000
            if header.counts_tokens and isinstance(reply, Answered):
                tokens = total_tokens(reply.body)
            if header.is_plain and isinstance(reply, Answered) and 200 <= reply.status < 300:
                outcome = Outcome(OutcomeKind.RESULT, reply.body)
            else:
                outcome = judge(identity, header.attempt, server, reply, header.run)
        except asyncio.CancelledError:
            raise
        except BaseException as error:  # noqa: BLE001 - a SystemExit here would hang the actor, a bug would lose a rollout
            latency_ms = (time.perf_counter() - started_at) * 1000
            outcome = internal_fault(identity, header.attempt, server, error, header.run)
        tokens = outcome.tokens if tokens is None else tokens
        return _completion(header, outcome, latency_ms, sends, tokens), outcome.record


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
