"""How busy servers are: each asked in its own way, and none able to disturb."""

import asyncio
import json

import pytest

from gym_ray import keys
from gym_ray.deployment.model_servers import model_server_urls
from gym_ray.environment.load import LoadSample, sample_load
from gym_ray.environment.prometheus import gauge_sums
from gym_ray.outcomes.reply import Answered, Delivery, Reply, Unanswered

METRICS = r"""
# HELP vllm:num_requests_waiting Number of requests waiting.
# TYPE vllm:num_requests_waiting gauge
vllm:num_requests_waiting{engine="0",model="a}b\"c"} 3.0
vllm:num_requests_waiting{engine="1"} 2
vllm:num_requests_waiting_max 99
vllm:num_requests_running{engine="0"} 7.0 1700000000
vllm:num_requests_running NaN
vllm:num_requests_running +Inf
other 5
"""


class Servers:
    """Answers by URL; what is not there hangs up."""

    def __init__(self, **answers: str) -> None:
        self._answers = {name.replace("_", "/"): text for name, text in answers.items()}
        self.asked: list[str] = []

    async def get(self, base_url: str, path: str, timeout_s: float, max_bytes: int) -> Reply:
        self.asked.append(base_url + path)
        assert (timeout_s, max_bytes) == (2.0, 1 << 22)
        await asyncio.sleep(0)
        text = self._answers.get(base_url.removeprefix("http://") + path)
        if text is None:
            return Unanswered(Delivery.NOT_SENT, keys.TRANSPORT_UNREACHABLE, "E", "gone", base_url)
        return Answered(200, text.encode(), base_url)


async def test_environment_servers_and_models_are_summed() -> None:
    servers = Servers(env_load='{"waiting": 1, "running": 4}', model_metrics=METRICS)
    sample = await sample_load(servers.get, ["http://env", "http://dead"], ["http://model/v1"])
    assert sample == LoadSample(waiting=6, running=11, servers=2, unreachable=1)
    assert "http://model/metrics" in servers.asked


GARBAGE = [
    "",
    "[]",
    '{"waiting": -1, "running": 1}',
    '{"waiting": NaN, "running": 1}',
    '{"waiting": true, "running": 1}',
    '{"waiting": %s, "running": 1}' % ("9" * 4000),
    '{"waiting": "x", "running": 1}',
    '{"waiting": 1}',
    "{" * 5000,
    '{"waiting":1e999,"running":1}',
]


@pytest.mark.parametrize("text", GARBAGE)
async def test_garbage_is_no_answer(text: str) -> None:
    assert await sample_load(Servers(env_load=text).get, ["http://env"], []) is None
    assert await sample_load(Servers(model_metrics="nothing 1").get, [], ["http://model"]) is None


def test_gauges_are_read_over_all_label_sets() -> None:
    assert gauge_sums(METRICS) == (5, 7)
    assert gauge_sums("vllm:num_requests_running 2") == (0, 2)
    assert gauge_sums("") is None


def test_model_servers_are_found_without_their_credentials() -> None:
    config = {
        "policy": {"responses_api_models": {"m": {"openai_base_url": "http://user:sk-secret@10.0.0.1:8000/v1/"}}},
        "judge": {"responses_api_models": {"m": {"base_url": ["http://h:1/v1", "${unresolved}"]}}},
        "again": {"responses_api_models": {"m": {"base_url": "http://h:1/v1"}}},
        "odd": {"responses_api_models": [1]}, "text": "x", "env": {"environment_servers": {"e": {"base_url": "http://e"}}},
    }  # fmt: skip
    assert model_server_urls(json.loads(json.dumps(config))) == ("http://10.0.0.1:8000/v1", "http://h:1/v1")
