"""Where the inference servers of a deployment are."""

from typing import Any

import pytest

from gym_ray.deployment.model_servers import model_server_urls


def config_of(*blocks: Any) -> dict[str, Any]:
    return {f"model_{number}": {"responses_api_models": {"m": block}} for number, block in enumerate(blocks)}


def test_urls_are_named_once_in_the_order_of_the_config() -> None:
    config = config_of(
        {"openai_base_url": "http://a:1/v1/"},
        {"base_url": ["http://b:1/v1", "http://a:1/v1"]},
        {"base_url": "HTTP://c:1"},
    )
    assert model_server_urls(config) == ("http://a:1/v1", "http://b:1/v1", "http://c:1")


@pytest.mark.parametrize(
    "url",
    ["http://user:secret@h:1/v1", "http://h:1/v1?api_key=secret", "http://h:1/v1#secret", "http://u@secret@h:1/v1"],
)
def test_credentials_are_removed(url: str) -> None:
    assert model_server_urls(config_of({"base_url": url})) == ("http://h:1/v1",)


@pytest.mark.parametrize(
    "block",
    [{"base_url": "http://[::1"}, {"base_url": "file:///x"}, {"base_url": 3}, {"host": "${h}", "port": 1}, [], None],
)
def test_what_cannot_be_asked_is_passed_over(block: Any) -> None:
    assert model_server_urls(config_of(block, {"base_url": "http://h:1"})) == ("http://h:1",)


def test_other_servers_are_none() -> None:
    config = {
        "env": {"environment_servers": {"e": {"base_url": "http://e"}}},
        "text": "x",
        "odd": {"responses_api_models": [1]},
    }
    assert model_server_urls(config) == ()
