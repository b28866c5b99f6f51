import pytest

from gym_ray.deployment.yaml_config import parse_config, resolve_config
from gym_ray.errors import ConfigError


def test_interpolations_are_resolved() -> None:
    assert parse_config("a: {port: 7}\nb: ${a.port}\nc: x-${b}", "here") == {"a": {"port": 7}, "b": 7, "c": "x-7"}


def test_environment_variables_are_those_of_the_reader(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("READERS_HOST", "10.0.0.9")
    assert parse_config("host: ${oc.env:READERS_HOST}", "here") == {"host": "10.0.0.9"}


def test_what_cannot_be_resolved_keeps_its_text_and_the_rest_is_resolved() -> None:
    text = "a: {key: '${oc.env:NOT_SET_ANYWHERE}', list: [1, '${nothing}', '${b}']}\nb: 2\nc: '${a.list}'"
    assert parse_config(text, "here") == {
        "a": {"key": "${oc.env:NOT_SET_ANYWHERE}", "list": [1, "${nothing}", 2]},
        "b": 2,
        "c": [1, "${nothing}", 2],
    }


def test_resolvers_of_composition_keep_their_text() -> None:
    text = "a: ${inherit_from:other}\nb: ${copy:x.y}\nc: ${a}"
    assert parse_config(text, "here") == {"a": "${inherit_from:other}", "b": "${copy:x.y}", "c": "${a}"}


def test_a_mandatory_value_that_is_missing_keeps_its_marks() -> None:
    assert parse_config("a: ???\nb: ${nothing}", "here") == {"a": "???", "b": "${nothing}"}


def test_a_node_that_contains_itself_ends() -> None:
    assert parse_config("a: {b: '${a}'}", "here")["a"] is not None


def test_json_is_read_too() -> None:
    assert parse_config('{"a": {"b": [1, 2.5, null, true]}}', "here") == {"a": {"b": [1, 2.5, None, True]}}


@pytest.mark.parametrize("text", ["- 1", "word", "", "5", "null"])
def test_what_is_not_a_mapping_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="here: expected a mapping"):
        parse_config(text, "here")


def test_broken_yaml_is_refused_with_its_place_and_without_its_text() -> None:
    with pytest.raises(ConfigError, match=r"here: expected YAML.*line 3, column") as caught:
        parse_config("api_key: sk-very-private\nb: [sk-also-private", "here")
    assert "private" not in str(caught.value)


def test_a_broken_interpolation_is_refused_with_its_key_and_without_its_text() -> None:
    with pytest.raises(ConfigError, match="here: policy_api_key: the interpolation") as caught:
        parse_config("policy_api_key: sk-very-private${", "here")
    assert "private" not in str(caught.value)


def test_a_mapping_of_plain_values_is_resolved_as_well() -> None:
    assert resolve_config({"a": 1, "b": "${a}"}) == {"a": 1, "b": 1}
