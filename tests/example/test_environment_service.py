"""The environment servers: replies, faults, limits and disconnects, over real connections."""

import asyncio
from pathlib import Path
from typing import Any

import aiohttp
import orjson
import pytest

from gym_ray.example import LedgerOptions, Limits
from gym_ray.example.arithmetic import ARITHMETIC as ARITHMETIC_FACTS
from gym_ray.example.attempt import AttemptIdentity
from gym_ray.example.environment import JsonObject
from gym_ray.example.environment_service import EnvironmentService
from gym_ray.example.execution_ledger import NO_LEDGER, ExecutionLedger
from gym_ray.example.listening import listen
from gym_ray.example.profile import PLAIN, UNLIMITED
from tests.example.calls import ARITHMETIC, CALCULATOR, calling, episode, row, until


async def test_a_flat_row_is_answered_with_its_result() -> None:
    async with calling() as caller:
        status, result = await caller.run(ARITHMETIC, row(task=3, rollout=1))
    assert status == 200
    assert result["reward"] in (0.0, 1.0)
    assert result["responses_create_params"] == row(task=3)["responses_create_params"]
    assert result["response"]["usage"]["total_tokens"] > 0
    assert (result["mask_sample"], result["failure_kind"], result["failure_reason"]) == (False, None, None)


async def test_an_episode_is_answered_with_its_ids_and_result() -> None:
    async with calling() as caller:
        status, reply = await caller.run(CALCULATOR, episode(task=5, rollout=2, attempt=3))
    assert status == 200
    assert list(reply) == ["episode_id", "task_id", "result", "failure"]
    assert reply["episode_id"] == {"rollout_id": "5-2", "attempt": 3}
    assert reply["task_id"] == {"taskset": "calculator_tools:example", "task_id": "calculator-0005"}
    assert reply["failure"] is None
    assert reply["result"]["reward"] in (0.0, 1.0)


async def test_rewards_repeat_whatever_the_order_the_profile_and_the_attempt() -> None:
    async def rewards(order: int, attempt: int, **profile: Any) -> dict[tuple[int, int], list[float]]:
        pairs = [(task, rollout) for task in range(24) for rollout in range(2)][::order]
        found: dict[tuple[int, int], list[float]] = {}
        async with calling(**profile) as caller:
            for task, rollout in pairs:
                _, flat = await caller.run(ARITHMETIC, row(task, rollout, attempt))
                _, tools = await caller.run(CALCULATOR, episode(task, rollout, attempt))
                found[task, rollout] = [flat["reward"], tools["result"]["reward"]]
        return found

    first = await rewards(order=1, attempt=0)
    assert first == await rewards(order=-1, attempt=2, latency="0..1ms", seed=9)
    assert {reward for each in first.values() for reward in each} == {0.0, 1.0}


@pytest.mark.parametrize(
    ("server", "body", "status"),
    [
        (ARITHMETIC, {"_ng_task_index": 0}, 422),
        (ARITHMETIC, b"{", 422),
        (ARITHMETIC, row(expected_answer="many"), 422),
        (ARITHMETIC, row(agent_ref={"name": "chess_agent"}), 500),
        (CALCULATOR, row(), 422),
        (CALCULATOR, episode(registers={}), 422),
        (CALCULATOR, {**episode(), "surplus": 1}, 422),
    ],
)
async def test_a_wrong_request_is_refused_and_not_executed(server: str, body: object, status: int) -> None:
    async with calling() as caller:
        found, reply = await caller.run(server, body)
        assert found == status
        if status == 422:
            assert {"type", "loc", "msg", "input"} <= set(reply["detail"][0])
            assert reply["detail"][0]["loc"][0] == "body"
        else:
            assert isinstance(reply, str)
            assert reply.startswith("ValueError(")
        assert caller.stats(server)["executed"] == 0


async def test_a_field_of_the_task_is_located_in_the_body() -> None:
    async with calling() as caller:
        _, flat = await caller.run(ARITHMETIC, row(steps=0))
        _, tools = await caller.run(CALCULATOR, episode(registers={}))
    assert flat["detail"][0]["loc"] == ["body", "steps"]
    assert tools["detail"][0]["loc"] == ["body", "task", "task_input", "registers"]


async def test_wrong_paths_and_methods_are_answered_in_json() -> None:
    async with calling() as caller:
        assert await caller.get(f"{caller.url(ARITHMETIC)}/nowhere") == (404, {"detail": "Not Found"})
        assert await caller.get(f"{caller.url(ARITHMETIC)}/run") == (405, {"detail": "Method Not Allowed"})


@pytest.mark.parametrize("path", ["/", "/livez", "/readyz", "/healthz", "/health"])
async def test_every_server_is_healthy(path: str) -> None:
    async with calling() as caller:
        for instance in ("arithmetic", "arithmetic_agent", ARITHMETIC, "calculator_tools_agent", CALCULATOR):
            assert await caller.get(f"{caller.url(instance)}{path}") == (200, {"status": "ok"})


@pytest.mark.parametrize("status", [429, 502, 503, 504])
async def test_a_refusal_comes_before_the_execution(status: int) -> None:
    async with calling(failures=f"{status}=100%") as caller:
        assert (await caller.run(ARITHMETIC, row()))[0] == status
        stats = caller.stats(ARITHMETIC)
    assert (stats["requests"], stats["executed"], stats["faults"]) == (1, 0, {str(status): 1})


async def test_a_fault_of_the_handler_comes_after_the_execution() -> None:
    async with calling(failures="500=100%") as caller:
        status, reply = await caller.run(CALCULATOR, episode())
        assert status == 500
        assert reply == "RuntimeError('fault drawn by the profile')"
        assert caller.stats(CALCULATOR)["executed"] == 1


async def test_a_dropped_connection_hides_a_finished_execution() -> None:
    async with calling(failures="drop=100%") as caller:
        with pytest.raises(aiohttp.ServerDisconnectedError):
            await caller.run(ARITHMETIC, row())
        stats = caller.stats(ARITHMETIC)
    assert (stats["executed"], stats["in_flight"], stats["disconnects"]) == (1, 0, 0)


async def test_a_cut_reply_has_a_status_and_half_a_body() -> None:
    async with calling(failures="cut=100%") as caller:
        async with caller.session.post(f"{caller.url(ARITHMETIC)}/run", data=orjson.dumps(row())) as reply:
            assert reply.status == 200
            with pytest.raises(aiohttp.ClientPayloadError):
                await reply.read()
        assert caller.stats(ARITHMETIC)["disconnects"] == 0


async def test_a_bad_body_is_a_whole_reply_that_is_no_json() -> None:
    async with calling(failures="badjson=100%") as caller:
        with pytest.raises(orjson.JSONDecodeError):
            await caller.run(ARITHMETIC, row())


async def test_a_handled_failure_has_the_form_of_its_request() -> None:
    async with calling(failures="handled=100%") as caller:
        status, flat = await caller.run(ARITHMETIC, row())
        assert status == 200
        assert flat["_ng_failure_class"] == "environment_server_failed"
        assert (flat["_ng_failure_terminal"], flat["reward"], flat["mask_sample"]) == (False, 0.0, True)
        status, reply = await caller.run(CALCULATOR, episode())
    assert status == 200
    assert reply["result"] is None
    assert reply["failure"] == {
        "failure_reason": "the profile gives up this attempt",
        "terminal": False,
        "failure_kind": "agent_timeout",
        "stage": "agent",
    }


async def test_an_exhausted_agent_is_a_handled_failure() -> None:
    async with calling() as caller:
        _, reply = await caller.run(CALCULATOR, episode(task=5, max_tool_calls=1))
    assert reply["failure"]["failure_reason"] == "the agent used all of its 1 tool calls"


async def test_an_exception_is_a_terminal_failure_of_an_episode_and_a_500_of_a_row() -> None:
    service = EnvironmentService(_BrokenEnvironment(), PLAIN, UNLIMITED, ExecutionLedger("broken", NO_LEDGER))
    listener = await listen(service.application(), "127.0.0.1", 0)
    try:
        async with aiohttp.ClientSession() as session:
            url = f"{listener.address.url}/run"
            async with session.post(url, json=episode()) as reply:
                assert reply.status == 200
                failure = (await reply.json())["failure"]
            assert failure == {"failure_reason": "ZeroDivisionError: no luck", "terminal": True}
            async with session.post(url, json=row()) as reply:
                assert reply.status == 500
                assert await reply.json() == "ZeroDivisionError('no luck')"
    finally:
        await listener.aclose()


class _BrokenEnvironment:
    facts = ARITHMETIC_FACTS

    def open(self, prompt: JsonObject, task: JsonObject) -> "_BrokenEnvironment":
        return self

    def play(self, identity: AttemptIdentity) -> JsonObject:
        raise ZeroDivisionError("no luck")


async def test_a_client_that_leaves_ends_the_handler() -> None:
    async with calling(failures="hang=100%") as caller:
        leaving = asyncio.create_task(caller.run(CALCULATOR, episode()))
        await until(lambda: caller.stats(CALCULATOR)["in_flight"] == 1)
        leaving.cancel()
        await until(lambda: caller.stats(CALCULATOR)["disconnects"] == 1)
        assert caller.stats(CALCULATOR)["in_flight"] == 0


async def test_a_client_that_leaves_the_queue_is_never_executed() -> None:
    limits = Limits(max_concurrent_episodes=1, queue_timeout_s=60)
    async with calling(failures="hang=100%", limits=limits) as caller:
        inside = asyncio.create_task(caller.run(CALCULATOR, episode(0)))
        await until(lambda: caller.stats(CALCULATOR)["in_flight"] == 1)
        queued = asyncio.create_task(caller.run(CALCULATOR, episode(1)))
        await until(lambda: caller.stats(CALCULATOR)["waiting"] == 1)
        assert await caller.get(f"{caller.url(CALCULATOR)}/load") == (200, {"waiting": 1, "running": 1})
        queued.cancel()
        await until(lambda: caller.stats(CALCULATOR)["waiting"] == 0)
        inside.cancel()
        await until(lambda: caller.stats(CALCULATOR)["disconnects"] == 2)
        assert caller.stats(CALCULATOR)["executed"] == 1
        assert await caller.get(f"{caller.url(CALCULATOR)}/load") == (200, {"waiting": 0, "running": 0})


async def test_who_finds_no_place_in_time_is_turned_away() -> None:
    limits = Limits(max_concurrent_episodes=1, queue_timeout_s=0)
    async with calling(failures="hang=100%", limits=limits) as caller:
        for server, body in ((ARITHMETIC, row()), (CALCULATOR, episode())):
            inside = asyncio.create_task(caller.run(server, body))
            await until(lambda server=server: caller.stats(server)["in_flight"] == 1)  # type: ignore[misc]
            status, reply = await caller.run(server, body)
            if server == ARITHMETIC:
                assert (status, reply) == (503, {"detail": "no place became free within 0 s"})
            else:
                assert status == 200
                assert reply["result"] is None
                assert (reply["failure"]["stage"], reply["failure"]["terminal"]) == ("admission", False)
            assert (caller.stats(server)["turned_away"], caller.stats(server)["executed"]) == (1, 1)
            inside.cancel()


async def test_an_episode_ends_at_its_time_limit() -> None:
    async with calling(failures="hang=100%", limits=Limits(episode_timeout_s=0.001)) as caller:
        _, reply = await caller.run(CALCULATOR, episode())
        _, flat = await caller.run(ARITHMETIC, row())
    assert reply["failure"] == {"failure_reason": "the episode took longer than 0.001 s", "terminal": False}
    assert flat["_ng_failure_class"] == "environment_server_failed"


async def test_the_ledger_keeps_the_latest_executions_and_the_file_all(tmp_path: Path) -> None:
    file = tmp_path / "executions.jsonl"
    async with calling(ledger=LedgerOptions(capacity=2, path=file)) as caller:
        for rollout in range(3):
            await caller.run(CALCULATOR, episode(4, rollout, attempt=1))
        await caller.run(ARITHMETIC, row(7))
        _, stats = await caller.get(f"{caller.url(CALCULATOR)}/stats")
        assert stats["executions"] == [[4, 1, 1], [4, 2, 1]]
        assert (stats["requests"], stats["executed"], stats["peak_in_flight"]) == (3, 3, 1)
    lines = [orjson.loads(line) for line in file.read_bytes().splitlines()]
    assert lines[0] == {"server": CALCULATOR, "task": 4, "rollout": 0, "attempt": 1}
    assert [line["task"] for line in lines] == [4, 4, 4, 7]


async def test_without_a_ledger_nothing_is_kept() -> None:
    async with calling() as caller:
        await caller.run(ARITHMETIC, row())
        assert caller.stats(ARITHMETIC)["executions"] == []


@pytest.mark.parametrize("instance", [ARITHMETIC, "arithmetic_agent", "arithmetic"])
async def test_every_server_aggregates(instance: str) -> None:
    records = [{"_ng_task_index": task, "_ng_rollout_index": 0, "reward": task % 2} for task in range(4)]
    async with calling() as caller:
        url = f"{caller.url(instance)}/aggregate_metrics"
        status, reply = await caller.post(url, {"verify_responses": records})
        assert status == 200
        assert reply["key_metrics"] == {"mean/reward": 0.5}
        assert reply["agent_metrics"]["pass@1/accuracy"] == 50.0
        status, fault = await caller.post(url, {"verify_responses": [records[0], records[0]]})
        assert status == 500
        assert fault == "ValueError('task 0, rollout 0 has several records; expected one')"
        status, refusal = await caller.post(url, {})
        assert (status, refusal["detail"][0]["loc"]) == (422, ["body", "verify_responses"])


async def test_a_run_of_results_aggregates_to_its_mean() -> None:
    async with calling() as caller:
        records = []
        for task in range(12):
            for rollout in range(2):
                _, result = await caller.run(ARITHMETIC, row(task, rollout))
                records.append({**result, "_ng_task_index": task, "_ng_rollout_index": rollout})
        _, reply = await caller.post(f"{caller.url(ARITHMETIC)}/aggregate_metrics", {"verify_responses": records})
    mean = sum(record["reward"] for record in records) / len(records)
    assert reply["key_metrics"]["mean/reward"] == pytest.approx(mean)
    assert reply["agent_metrics"]["pass@1/accuracy"] == pytest.approx(100 * mean)
    assert reply["agent_metrics"]["num_repeats"] == 2
    assert len(reply["group_level_metrics"]) == 12


async def test_bodies_of_many_megabytes_are_taken() -> None:
    async with calling() as caller:
        status, result = await caller.run(ARITHMETIC, row(note="x" * 5_000_000))
    assert status == 200
    assert "note" not in result
