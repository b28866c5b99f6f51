import json
import pickle
from pathlib import Path
from typing import Any

import pytest
import yaml
from omegaconf import OmegaConf

from gym_ray.deployment.merged import Deployment, load_deployment
from gym_ray.errors import (
    AgentWithoutEnvironmentServerError,
    AmbiguousEnvironmentServerError,
    ConfigError,
    DeploymentUnreachableError,
    RoutingError,
)
from tests.deployment.configs import agent, environment_server, maze
from tests.deployment.test_head import head


def deployment(config: dict[str, Any], **environ: str) -> Deployment:
    return Deployment.of_config(config, environ=environ)


def test_the_file_counts_before_everything_else(tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(yaml.safe_dump(maze()))
    found = load_deployment(file=str(file), head="127.0.0.1:1", environ={"NEMO_GYM_CONFIG_DICT": "a: 1"})
    assert list(found.environment_servers) == ["maze_environment"]
    assert found.source == str(file)


@pytest.mark.parametrize("text", [json.dumps(maze()), json.dumps(yaml.safe_dump(maze()))], ids=["json", "saved answer"])
def test_a_file_may_be_json_or_a_saved_answer_of_a_head(tmp_path: Path, text: str) -> None:
    file = tmp_path / "config.json"
    file.write_text(text)
    assert "maze_agent" in load_deployment(file=str(file), environ={}).agents


def test_a_head_that_is_named_counts_before_the_variable() -> None:
    with head(json.dumps(yaml.safe_dump(maze())).encode()) as address:
        found = load_deployment(head=str(address), environ={"NEMO_GYM_CONFIG_DICT": "a: 1"})
    assert "maze_agent" in found.agents


def test_the_variable_counts_before_the_default_head() -> None:
    found = load_deployment(environ={"NEMO_GYM_CONFIG_DICT": yaml.safe_dump(maze())})
    assert found.source == "NEMO_GYM_CONFIG_DICT"
    assert "maze_agent" in found.agents


def test_an_empty_variable_is_not_set() -> None:
    with pytest.raises(DeploymentUnreachableError, match=r"127\.0\.0\.1:\d+"):
        load_deployment(head="127.0.0.1:1", environ={"NEMO_GYM_CONFIG_DICT": ""})


def test_a_file_that_is_missing_or_not_text_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"missing\.yaml cannot be read: No such file"):
        load_deployment(file=str(tmp_path / "missing.yaml"), environ={})
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match="not UTF-8"):
        load_deployment(file=str(tmp_path / "binary"), environ={})


def test_the_config_is_never_shown() -> None:
    config = {**maze(), "policy_api_key": "sk-very-private"}
    assert "private" not in repr(deployment(config))
    assert "private" not in str(deployment(config))


def test_a_deployment_crosses_process_borders() -> None:
    copy = pickle.loads(pickle.dumps(deployment(maze())))
    assert copy.server_for_agent("maze_agent").name == "maze_environment"


def test_an_omegaconf_config_is_taken_as_well() -> None:
    config = OmegaConf.create({**maze(port="${port}"), "port": 7, "key": "${oc.env:NOT_SET_ANYWHERE}"})
    assert Deployment.of_config(config).environment_servers["maze_environment"].base_url == "http://127.0.0.1:7"


def test_an_agent_is_served_by_the_one_server_that_fronts_it() -> None:
    assert deployment(maze()).server_for_agent("maze_agent").name == "maze_environment"


def test_an_unknown_agent_gets_a_suggestion() -> None:
    with pytest.raises(RoutingError, match="'maze_agnet' is not in the deployment: did you mean 'maze_agent'"):
        deployment(maze()).server_for_agent("maze_agnet")


def test_an_instance_that_is_not_an_agent_is_told_apart_from_an_unknown_one() -> None:
    with pytest.raises(RoutingError, match="'maze' exists in the deployment, but is not an agent"):
        deployment(maze()).server_for_agent("maze")


def test_an_agent_that_nobody_fronts_is_refused() -> None:
    with pytest.raises(AgentWithoutEnvironmentServerError, match="lonely"):
        deployment({"lonely": agent()}).server_for_agent("lonely")


def test_an_agent_that_two_front_is_refused() -> None:
    config = {**maze(), "second": environment_server("maze_agent")}
    with pytest.raises(AmbiguousEnvironmentServerError, match="maze_environment, second"):
        deployment(config).server_for_agent("maze_agent")


def test_a_server_that_cannot_be_used_is_an_error_where_it_is_needed_only() -> None:
    found = deployment({**maze(), "broken": environment_server("other", port=None), "other": agent()})
    assert found.server_for_agent("maze_agent").name == "maze_environment"
    with pytest.raises(ConfigError, match=r"broken\.environment_servers\.legacy_agent\.port"):
        found.server_for_agent("other")


def test_an_unknown_environment_server_gets_a_suggestion() -> None:
    with pytest.raises(RoutingError, match="did you mean 'maze_environment'"):
        deployment(maze()).environment_server("maze_enviroment")
    with pytest.raises(RoutingError, match="'maze' exists, but is not one"):
        deployment(maze()).environment_server("maze")


def test_model_calls_are_captured_only_with_observability(tmp_path: Path) -> None:
    assert deployment({"model_call_capture_dir": str(tmp_path)}).model_call_capture_dir is None
    config = {"observability_enabled": True, "model_call_capture_dir": str(tmp_path)}
    assert deployment(config).observability_enabled
    assert deployment(config).model_call_capture_dir == str(tmp_path)


@pytest.mark.parametrize("folder", [None, "relative/captures", 5])
def test_observability_needs_an_absolute_folder(folder: Any) -> None:
    config = {"observability_enabled": True, "model_call_capture_dir": folder}
    with pytest.raises(ConfigError, match="absolute model_call_capture_dir"):
        _ = deployment(config).model_call_capture_dir


@pytest.mark.parametrize(("value", "allows"), [("", False), ("0", False), ("False", False), ("1", True), ("yes", True)])
def test_the_variable_allows_any_pairing(value: str, allows: bool) -> None:
    assert deployment(maze(), NEMO_GYM_ALLOW_UNSUPPORTED_PAIRING=value).allows_unsupported_pairing is allows


def test_the_config_allows_any_pairing() -> None:
    assert deployment({**maze(), "allow_unsupported_pairing": True}).allows_unsupported_pairing


def test_routes_of_the_deployment_are_read() -> None:
    assert deployment({"environment_server_routes": {"maze:eval": "e"}}).environment_server_routes == {"maze:eval": "e"}
    assert deployment({"environment_server_routes": None}).environment_server_routes == {}
