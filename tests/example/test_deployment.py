"""The deployment as a whole: discovery through the head, start, end, and life in a thread."""

import asyncio
import socket
import urllib.error
import urllib.request

import aiohttp
import orjson
import pytest
from omegaconf import OmegaConf

from gym_ray.errors import ConfigError
from gym_ray.example import (
    ExampleDeployment,
    Profile,
    example_deployment,
    example_in_thread,
    profile_of_texts,
    serve_forever,
)
from gym_ray.example.head_service import HeadService
from gym_ray.example.listening import listen
from tests.example.calls import ARITHMETIC, CALCULATOR, Caller, calling, episode, until


async def test_the_head_publishes_the_config_as_yaml_in_a_json_string() -> None:
    async with calling() as caller:
        status, text = await caller.get(f"{caller.deployment.head_url}/global_config_dict_yaml")
    assert status == 200
    assert isinstance(text, str)
    assert OmegaConf.to_container(OmegaConf.create(text)) == caller.deployment.config


async def test_the_config_names_who_fronts_whom() -> None:
    async with calling() as caller:
        config = caller.deployment.config
    server = config[CALCULATOR]["environment_servers"]["single_agent_turn"]
    assert server["agent_server"] == {"type": "responses_api_agents", "name": "calculator_tools_agent"}
    assert server["resources_server"] == {"type": "resources_servers", "name": "calculator_tools"}
    assert config["environment_server_routes"] == {"calculator_tools:example": CALCULATOR}
    assert config["calculator_tools"]["resources_servers"]["calculator_tools"]["datasets"][0]["taskset"] == (
        "calculator_tools:example"
    )
    assert config["head_server"]["port"] == int(caller.deployment.head_address.rpartition(":")[2])


async def test_the_head_lists_every_instance() -> None:
    async with calling() as caller:
        _, instances = await caller.get(f"{caller.deployment.head_url}/server_instances")
        assert {each["process_name"]: each["url"] for each in instances} == {
            name: caller.url(name) for name in (*_instances("arithmetic"), *_instances("calculator_tools"))
        }
    assert {each["server_type"] for each in instances} == {
        "environment_servers",
        "responses_api_agents",
        "resources_servers",
    }
    assert {each["status"] for each in instances} == {"success"}


async def test_a_head_is_alive_before_it_is_ready() -> None:
    head = HeadService()
    listener = await listen(head.application(), "127.0.0.1", 0)
    try:
        async with aiohttp.ClientSession() as session:

            async def status(path: str) -> int:
                async with session.get(f"{listener.address.url}{path}") as reply:
                    return reply.status

            assert [await status(path) for path in ("/", "/livez")] == [200, 200]
            assert [await status(path) for path in ("/readyz", "/healthz", "/health")] == [503] * 3
            assert await status("/global_config_dict_yaml") == 503
            assert await status("/server_instances") == 503
            head.publish({"a": 1}, [])
            assert [await status(path) for path in ("/readyz", "/healthz", "/health")] == [200] * 3
    finally:
        await listener.aclose()


async def test_a_taken_port_is_refused_and_nothing_stays_open() -> None:
    async with example_deployment() as first:
        port = first.config["head_server"]["port"]
        second = ExampleDeployment(head_port=port)
        with pytest.raises(ConfigError, match=rf"cannot listen on 127\.0\.0\.1:{port} .*: choose another"):
            await second.start()
        assert not second.servers
        await second.aclose()


async def test_a_wildcard_host_is_published_as_loopback() -> None:
    async with example_deployment(host="0.0.0.0") as deployment:
        assert deployment.head_address.startswith("127.0.0.1:")
        assert deployment.config[ARITHMETIC]["environment_servers"]["single_agent_turn_legacy"]["host"] == "127.0.0.1"


def test_a_deployment_that_was_not_started_has_no_address() -> None:
    with pytest.raises(RuntimeError, match="start"):
        _ = ExampleDeployment().head_url


async def test_closing_ends_what_is_in_flight_and_counts_no_disconnect() -> None:
    async with aiohttp.ClientSession() as session:
        async with example_deployment(profile_of_texts(failures="hang=100%")) as deployment:
            caller = Caller(deployment, session)
            hanging = asyncio.create_task(caller.run(CALCULATOR, episode()))
            await until(lambda: caller.stats(CALCULATOR)["in_flight"] == 1)
        with pytest.raises(aiohttp.ClientError):
            await hanging
        await until(lambda: caller.stats(CALCULATOR)["in_flight"] == 0)
        assert caller.stats(CALCULATOR)["disconnects"] == 0
        with pytest.raises(aiohttp.ClientConnectorError):
            await caller.get(deployment.head_url)


async def test_serving_for_ever_ends_cleanly_when_it_is_cancelled() -> None:
    ready = asyncio.get_running_loop().create_future()
    serving = asyncio.create_task(serve_forever("127.0.0.1", 0, Profile(), on_ready=ready.set_result))
    deployment = await ready
    async with aiohttp.ClientSession() as session:
        assert await Caller(deployment, session).get(f"{deployment.head_url}/readyz") == (200, {"status": "ok"})
    serving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await serving
    assert _is_refused(deployment.head_address)


def test_a_blocking_caller_is_served_from_a_thread() -> None:
    with example_in_thread() as deployment:
        port = deployment.config[CALCULATOR]["environment_servers"]["single_agent_turn"]["port"]
        body = orjson.dumps(episode())
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/run", body, timeout=10) as reply:
            assert orjson.loads(reply.read())["episode_id"]["rollout_id"] == "0-0"
        assert deployment.servers[CALCULATOR].stats()["executed"] == 1
    assert _is_refused(deployment.head_address)


def test_the_thread_ends_when_the_block_raises() -> None:
    with pytest.raises(KeyError), example_in_thread() as deployment:
        raise KeyError
    assert _is_refused(deployment.head_address)


def test_a_failed_start_is_raised_in_the_calling_thread() -> None:
    with example_in_thread() as deployment, pytest.raises(ConfigError, match="cannot listen"):
        port = deployment.config["head_server"]["port"]
        with example_in_thread(head_port=port):
            pass


def _instances(resources_server: str) -> tuple[str, str, str]:
    return f"{resources_server}_environment_server", f"{resources_server}_agent", resources_server


def _is_refused(address: str) -> bool:
    host, _, port = address.rpartition(":")
    with socket.socket() as client:
        return client.connect_ex((host, int(port))) != 0
