"""Captured calls reach the records of runs and the results of calls, under the number of their attempt."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from gym_ray import RolloutCollectionConfig, RolloutCollectionHelper, RolloutRunner
from gym_ray.deployment.lookup import Deployment
from gym_ray.errors import ConfigError

CALL = {"model_call_id": "c", "latency_ms": 1.0, "request": {"input": "q"}, "response": {"id": "r", "output": []}}


class Server:
    """An environment server that captures as its model server would: one call for each rollout that it runs."""

    def __init__(self, captures: Path) -> None:
        self.captures = captures
        self.stale: list[bool] = []
        self.fails = False

    async def run(self, request: web.Request) -> web.Response:
        row = await request.json()
        own_id = row.get("_ng_rollout_id") or f"{row['_ng_task_index']}-{row['_ng_rollout_index']}"
        attempt = row.get("_ng_attempt_index", 0)
        key = own_id if not attempt else f"{own_id}-a{attempt}"
        file = self.captures / f"{key}.capture.jsonl"
        self.stale.append(file.exists())
        file.write_text(json.dumps({**CALL, "model_call_id": f"call-{key}"}) + "\n")
        if self.fails:
            return web.json_response({"error": "no"}, status=500)
        return web.json_response({"reward": 1.0, "response": {}})


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[tuple[Server, Deployment]]:
    captures = tmp_path / "captures"
    captures.mkdir()
    server, app = Server(captures), web.Application()
    app.router.add_post("/run", server.run)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]
    yield server, deployment(port, captures)
    await runner.cleanup()


def deployment(port: int, captures: Path | str | None, enabled: bool = True) -> Deployment:
    block = {"host": "127.0.0.1", "port": port}
    return Deployment.of_config(
        {
            "observability_enabled": enabled,
            "model_call_capture_dir": None if captures is None else str(captures),
            "env": {"environment_servers": {"legacy_agent": {**block, "agent_server": {"name": "a"}}}},
            "a": {"responses_api_agents": {"simple_agent": block}},
        }
    )


ROWS = [{"responses_create_params": {"input": f"q{n}"}, "agent_ref": {"name": "a"}} for n in range(2)]


async def test_a_run_records_what_was_captured_under_the_number_of_each_attempt(
    served: tuple[Server, Deployment], tmp_path: Path
) -> None:
    server, deployed = served
    settings: dict[str, Any] = {
        "output_jsonl_fpath": str(tmp_path / "r.jsonl"), "executor": "local", "disable_aggregation": True, "shards": 1,
    }  # fmt: skip
    (server.captures / "0-0.capture.jsonl").write_text("stale\n")
    (server.captures / "0-0.capture.incomplete").touch()
    server.fails = True
    async with RolloutRunner(RolloutCollectionConfig(**settings), deployment=deployed) as runner:
        assert len([pair async for pair in runner.run(ROWS)]) == 2
    assert server.stale == [False, False], "what an earlier run has left is cleared before a rollout starts"
    assert "ng_model_call_capture" not in (tmp_path / "r-0_failures.jsonl").read_text()
    server.fails = False
    again = RolloutCollectionConfig(**settings, resume_from_cache=True)
    async with RolloutRunner(again, deployment=deployed) as runner:
        results = [result async for _, result in runner.run(ROWS)]
    for result in results:
        key = f"{result['_ng_task_index']}-0-a1"
        capture = result["ng_model_call_capture"]
        assert (capture["rollout_id"], capture["calls"][0]["model_call_id"]) == (key, f"call-{key}")
        assert "gaps" not in capture
        assert result["ng_trajectory"]["rollout_id"] == key
        assert result["ng_trajectory"]["model_calls"][0]["request"] == {"input": "q"}
    assert sorted(json.loads(line)["_ng_task_index"] for line in (tmp_path / "r-0.jsonl").read_text().splitlines()) == [
        0,
        1,
    ]


async def test_a_call_may_keep_bodies_and_remove_captures(served: tuple[Server, Deployment]) -> None:
    server, deployed = served
    async with RolloutCollectionHelper(executor="local", deployment=deployed) as helper:
        rows = helper.preprocess_examples(ROWS)
        plain = [result async for _, result in helper.run_examples(rows)]
        assert not any("ng_model_call_capture" in result for result in plain)
        async for row, result in helper.run_examples(rows, enrich_results=True, delete_model_call_capture=True):
            (call,) = result["ng_model_call_capture"]["calls"]
            assert call["response"]["id"] == "r"
            assert call["model_call_id"] == f"call-{row['_ng_rollout_id']}"
            assert not (server.captures / f"{row['_ng_rollout_id']}.capture.jsonl").exists()
        async for row, result in helper.run_examples(rows, enrich_results=True, include_model_call_payloads=False):
            assert "response" not in result["ng_model_call_capture"]["calls"][0]
            assert (server.captures / f"{row['_ng_rollout_id']}.capture.jsonl").exists()


async def test_capture_without_a_folder_is_refused_before_anything_is_sent(served: tuple[Server, Deployment]) -> None:
    server, _ = served
    helper = RolloutCollectionHelper(executor="local", deployment=deployment(1, None))
    with pytest.raises(ConfigError, match="absolute model_call_capture_dir"):
        helper.run_examples(helper.preprocess_examples(ROWS))
    assert server.stale == []
