"""Settings from files, variables, overrides and flags."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from gym_ray.config import RolloutCollectionConfig
from gym_ray.config_files.loading import LoadedConfig, load_config
from gym_ray.errors import ConfigError
from tests.deployment.configs import maze


def loaded(
    *overrides: str,
    files: list[Path] | None = None,
    flags: Mapping[str, Any] | None = None,
    environ: Mapping[str, str] | None = None,
) -> LoadedConfig:
    return load_config(list(map(str, files or [])), overrides, flags, environ or {})


def config(*overrides: str, **arguments: Any) -> RolloutCollectionConfig:
    return loaded(*overrides, **arguments).config


def file(tmp_path: Path, content: Any, name: str = "run.yaml") -> Path:
    path = tmp_path / name
    path.write_text(content if isinstance(content, str) else yaml.safe_dump(content))
    return path


def refused(*overrides: str, **arguments: Any) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        loaded(*overrides, **arguments)
    return str(caught.value).split("\n")


# Precedence


def test_without_anything_there_are_the_defaults() -> None:
    assert config() == RolloutCollectionConfig()


def test_later_sources_win(tmp_path: Path) -> None:
    files = [file(tmp_path, {"limit": 1, "shards": 1, "num_repeats": 1, "seed": 1, "sample": 1}, "a.yaml")]
    files.append(file(tmp_path, {"shards": 2, "num_repeats": 2, "seed": 2, "sample": 2}, "b.yaml"))
    environ = {"GYM_RAY_NUM_REPEATS": "3", "GYM_RAY_SEED": "3", "GYM_RAY_SAMPLE": "3"}
    found = config("seed=4", "sample=4", files=files, environ=environ, flags={"sample": 5, "limit": None})
    assert (found.limit, found.shards, found.num_repeats, found.seed, found.sample) == (1, 2, 3, 4, 5)


def test_maps_of_files_are_merged_and_lists_are_replaced(tmp_path: Path) -> None:
    first = file(tmp_path, {"agent_map": {"x": "a", "y": "b"}, "task_ids": ["1", "2"]}, "a.yaml")
    second = file(tmp_path, {"agent_map": {"y": "c"}, "task_ids": ["3"]}, "b.yaml")
    found = config(files=[first, second])
    assert found.agent_map == {"x": "a", "y": "c"}
    assert found.task_ids == ["3"]


def test_files_can_be_named_by_overrides(tmp_path: Path) -> None:
    first, second = file(tmp_path, {"limit": 1}, "a.yaml"), file(tmp_path, {"limit": 2}, "b.yaml")
    assert config(f"+config_paths=[{first}]", f"+config_paths=[{second}]").limit == 2
    assert config(f"+config_paths=[{first}]", "limit=3").limit == 3


def test_files_are_found_in_the_extra_roots(tmp_path: Path) -> None:
    file(tmp_path, {"limit": 7}, "a.yaml")
    assert load_config(["a.yaml"], environ={"NEMO_GYM_EXTRA_ROOTS": str(tmp_path)}).config.limit == 7


def test_an_empty_file_says_nothing(tmp_path: Path) -> None:
    assert config(files=[file(tmp_path, "")]) == RolloutCollectionConfig()
    with pytest.raises(ConfigError, match="expected a mapping of settings"):
        loaded(files=[file(tmp_path, "- limit")])


# Overrides


@pytest.mark.parametrize("spelling", ["", "+", "++"])
def test_every_spelling_sets_a_field_that_no_file_sets(spelling: str) -> None:
    assert config(f"{spelling}limit=5").limit == 5


@pytest.mark.parametrize("spelling", ["", "+", "++"])
def test_every_spelling_changes_what_a_file_sets(tmp_path: Path, spelling: str) -> None:
    assert config(f"{spelling}limit=5", files=[file(tmp_path, {"limit": 1})]).limit == 5


def test_an_entry_of_a_map_has_to_be_added_before_it_can_be_changed(tmp_path: Path) -> None:
    assert refused("responses_create_params.temperature=0.2") == [
        "responses_create_params.temperature=...: responses_create_params.temperature  is not set yet  "
        "add it with +responses_create_params.temperature=<value>"
    ]
    params = {"temperature": 0.2, "top_p": 1}
    assert (
        config("+responses_create_params.temperature=0.2", "+responses_create_params.top_p=1").responses_create_params
        == params
    )
    source = file(tmp_path, {"responses_create_params": params})
    assert (
        config("responses_create_params.temperature=0.5", files=[source]).responses_create_params["temperature"] == 0.5
    )
    assert config("++responses_create_params.temperature=0.5").responses_create_params == {"temperature": 0.5}


def test_a_map_is_merged_into_the_one_that_is_there(tmp_path: Path) -> None:
    source = file(tmp_path, {"num_repeats": {"a": 2, "_default": 1}})
    assert config("num_repeats={a:3,b:4}", files=[source]).num_repeats == {"a": 3, "b": 4, "_default": 1}
    assert config("num_repeats=5", files=[source]).num_repeats == 5
    assert config("+num_repeats.a=5").num_repeats == {"a": 5}


def test_text_that_looks_like_a_number_stays_text_where_only_text_will_do() -> None:
    found = config("agent_name=007", "+task_ids=[1,x]", "exclude_task_id=17", "task_id=m-*", "output_jsonl_fpath=2026")
    assert found.agent_name == "007"
    assert found.task_ids == ["1", "x"]
    assert found.exclude_task_id == ["17"]
    assert found.task_id == ["m-*"]
    assert found.output_jsonl_fpath == "2026"


def test_the_input_is_one_path_or_several() -> None:
    assert config("input_jsonl_fpath=a.jsonl").input_jsonl_fpath == "a.jsonl"
    assert config("input_jsonl_fpath=[a.jsonl,b.jsonl]").input_jsonl_fpath == ["a.jsonl", "b.jsonl"]


def test_null_takes_a_setting_back(tmp_path: Path) -> None:
    assert config("limit=null", files=[file(tmp_path, {"limit": 3})]).limit is None


# Variables


def test_variables_are_read_like_overrides() -> None:
    environ = {
        "GYM_RAY_AGENT_MAP": "{a: b}",
        "GYM_RAY_INTERLEAVE_REPEATS": "true",
        "GYM_RAY_AGENT_NAME": "007",
        "GYM_RAY_LIMIT": "",
        "OTHER": "x",
    }
    found = config(environ={**environ, "GYM_RAY_AGENT_MAP": "{a: b, _default: '007'}"})
    assert found.agent_map == {"a": "b", "_default": "007"}
    assert found.interleave_repeats
    assert found.limit is None


def test_a_variable_for_no_setting_is_refused() -> None:
    assert refused(environ={"GYM_RAY_NUM_REPEAT": "3"}) == [
        "GYM_RAY_NUM_REPEAT: num_repeat  no such setting  did you mean 'num_repeats'?"
    ]


# Files that a deployment shares


SHARED: dict[str, Any] = {
    **maze(),
    "my_agent": {"_inherit_from": "maze_agent"},
    "policy_base_url": "http://h",
    "policy_model_name": "m",
    "default_host": "h",
    "observability_enabled": True,
    "custom_url": "http://x",
    "judge": "${custom_url}/v1",
    "limit": 4,
    "environment_server_routes": {"maze:eval": "maze_environment"},
}


def test_keys_of_a_deployment_pass_in_a_shared_file(tmp_path: Path) -> None:
    found = config(files=[file(tmp_path, SHARED)])
    assert found.limit == 4
    assert found.environment_server_routes == {"maze:eval": "maze_environment"}


def test_keys_of_a_deployment_pass_as_overrides_too(tmp_path: Path) -> None:
    overrides = ("+policy_model_name=x", "+verbose=true", "maze_agent.responses_api_agents.simple_agent.port=5")
    assert config(*overrides, "++judge=y", files=[file(tmp_path, SHARED)]).limit == 4


def test_settings_may_refer_to_keys_of_a_deployment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OUT", "/out")
    source = file(tmp_path, {**SHARED, "output_jsonl_fpath": "${oc.env:OUT}/${policy_model_name}.jsonl"})
    assert config(files=[source]).output_jsonl_fpath == "/out/m.jsonl"
    assert config("+policy_model_name=other", files=[source]).output_jsonl_fpath == "/out/other.jsonl"


def test_what_a_deployment_cannot_resolve_here_does_not_matter(tmp_path: Path) -> None:
    assert config(files=[file(tmp_path, {**SHARED, "hf_token": "${oc.env:NOT_SET_ANYWHERE}"})]).limit == 4


def test_the_head_server_of_a_shared_file_is_the_head(tmp_path: Path) -> None:
    source = file(tmp_path, {**SHARED, "head_server": {"host": "10.0.0.5", "port": 12000}})
    assert config(files=[source]).head == "10.0.0.5:12000"
    assert config("head=h:1", files=[source]).head == "h:1"
    assert config(files=[source], flags={"deployment": "file"}).head is None
    assert config(files=[source], environ={"NEMO_GYM_CONFIG_DICT": "a: 1"}).head is None
    assert config(files=[file(tmp_path, {"head_server": {}})]).head == "127.0.0.1:11000"
    assert config(files=[file(tmp_path, {"head_server": {"port": 5}, "default_host": "::1"})]).head == "[::1]:5"


# Mistakes


def test_an_unknown_key_is_refused_with_a_suggestion(tmp_path: Path) -> None:
    source = file(tmp_path, {"num_repeat": 4, "zzz": 1})
    assert refused("+nm_samples_in_parallel=3", "+qqq.x=1", files=[source]) == [
        f"{source}: num_repeat  no such setting  did you mean 'num_repeats'?",
        f"{source}: zzz  no such setting  `gym-ray config` lists them",
        "+nm_samples_in_parallel=...: nm_samples_in_parallel  no such setting  did you mean 'num_samples_in_parallel'?",
        "+qqq.x=...: qqq.x  no such setting  `gym-ray config` lists them",
    ]


def test_in_a_shared_file_only_what_looks_like_ours_is_refused(tmp_path: Path) -> None:
    source = file(tmp_path, {**SHARED, "num_repeat": 4, "totally_own": 1})
    assert refused(files=[source]) == [f"{source}: num_repeat  no such setting  did you mean 'num_repeats'?"]


def test_wrong_values_are_told_with_their_origin_and_what_to_do(tmp_path: Path) -> None:
    source = file(tmp_path, {"limit": "many", "skills": {"pth": "x"}, "agent_map": {"a": 5}})
    lines = refused(
        "+num_repeats={a:x}", "shards=0", files=[source], environ={"GYM_RAY_EXECUTOR": "cloud"}, flags={"sample": -1}
    )
    assert set(lines) == {
        f"{source}: limit  expected a valid integer, unable to parse string as an integer, found 'many'  "
        "set it with +limit=<value> or --limit",
        f"{source}: skills.path  is missing  set it with +skills.path=<value>",
        f"{source}: skills.pth  no such setting  set it with +skills.pth=<value>",
        f"{source}: agent_map.a  expected a valid string, found 5  set it with +agent_map.a=<value>",
        "+num_repeats=...: num_repeats.a  expected a valid integer, unable to parse string as an integer, found 'x'  "
        "set it with +num_repeats.a=<value>",
        "shards=...: shards  expected greater than or equal to 1, found 0  set it with +shards=<value> or --shards",
        "GYM_RAY_EXECUTOR: executor  expected 'ray' or 'local', found 'cloud'  "
        "set it with +executor=<value> or --executor",
        "--sample: sample  expected greater than or equal to 1, found -1  set it with +sample=<value> or --sample",
    }


def test_settings_that_contradict_each_other_are_told() -> None:
    assert refused("agent_name=a", "+agent_map._default=b") == [
        "settings: agent_name and agent_map._default name different agents: keep one of them"
    ]


def test_an_interpolation_that_leads_nowhere_is_told(tmp_path: Path) -> None:
    source = file(tmp_path, {"output_jsonl_fpath": "${nowhere}/x.jsonl", "limit": "???"})
    limit, output = refused(files=[source])
    assert limit.startswith(f"{source}: limit  cannot be resolved: ")
    assert output.startswith(f"{source}: output_jsonl_fpath  cannot be resolved: ")


def test_credentials_are_not_shown(tmp_path: Path) -> None:
    lines = refused("+responses_create_params=5", "+agent_map={api_key: [sk-very-private]}")
    assert "private" not in "\n".join(lines)
    with pytest.raises(ConfigError) as caught:
        loaded(files=[file(tmp_path, "policy_api_key: sk-very-private\nlimit: [")])
    assert "private" not in str(caught.value)


def test_a_file_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"--config .*nowhere\.yaml: cannot be read: No such file"):
        loaded(files=[tmp_path / "nowhere.yaml"])


# Origins


def test_every_value_has_an_origin(tmp_path: Path) -> None:
    source = file(tmp_path, {"limit": 1, "agent_map": {"x": "a", "y": "b"}, "shards": 3})
    found = loaded(
        "+agent_map.y=c", "++num_repeats={a: 2}", files=[source], environ={"GYM_RAY_SEED": "5"}, flags={"shards": 4}
    )
    origins = {setting.path: (setting.value, setting.origin) for setting in found.settings()}
    assert origins["limit"] == (1, str(source))
    assert origins["agent_map.x"] == ("a", str(source))
    assert origins["agent_map.y"] == ("c", "+agent_map.y=...")
    assert origins["num_repeats.a"] == (2, "++num_repeats=...")
    assert origins["seed"] == (5, "GYM_RAY_SEED")
    assert origins["shards"] == (4, "--shards")
    assert origins["interleave_repeats"] == (False, "default")
    assert origins["responses_create_params"] == ({}, "default")


def test_a_plain_value_over_a_map_leaves_no_origin_of_the_map(tmp_path: Path) -> None:
    source = file(tmp_path, {"num_repeats": {"a": 2}})
    assert loaded("num_repeats=3", files=[source]).origins == {("num_repeats",): "num_repeats=..."}


def test_a_map_over_a_plain_value_leaves_no_origin_of_the_value(tmp_path: Path) -> None:
    source = file(tmp_path, {"num_repeats": 3})
    assert loaded("++num_repeats.a=2", files=[source]).origins == {("num_repeats", "a"): "++num_repeats.a=..."}


def test_flags_are_named_as_they_are_typed() -> None:
    found = loaded(flags={"num_samples_in_parallel": 8, "agent_name": "a"})
    assert set(found.origins.values()) == {"--concurrency", "--agent"}
