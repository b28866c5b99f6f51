from pathlib import Path

import pytest

from gym_ray.errors import ConfigError
from gym_ray.rows.prompt_files import load_prompt
from gym_ray.rows.prompts import Prompt


def loaded(tmp_path: Path, text: str) -> Prompt:
    (tmp_path / "prompt.yaml").write_text(text, encoding="utf-8")
    return load_prompt(str(tmp_path / "prompt.yaml"), {})


def test_places_are_filled_from_the_fields_of_the_row() -> None:
    prompt = Prompt(user="{question} {{literally}} {options[0]}", system="Be {mood}.")
    assert prompt.messages({"question": "Why?", "mood": "kind", "options": ["a"], "other": 1}) == [
        {"role": "system", "content": "Be kind."},
        {"role": "user", "content": "Why? {literally} a"},
    ]


def test_without_a_system_text_there_is_only_a_user_message() -> None:
    assert Prompt(user="{a}").messages({"a": 5}) == [{"role": "user", "content": "5"}]


def test_a_field_that_the_row_lacks_is_named() -> None:
    with pytest.raises(ValueError, match="asks for the field 'question'"):
        Prompt(user="{question}").messages({"a": 1})


@pytest.mark.parametrize("template", ["{a.nothing}", "{a[x]}", "{a:d}", "{l[7]}"])
def test_a_field_that_cannot_do_what_the_template_asks_is_told(template: str) -> None:
    with pytest.raises(ValueError, match=r"cannot be filled|asks for the field"):
        Prompt(user=template).messages({"a": "text", "l": []})


def test_a_template_is_read_from_yaml(tmp_path: Path) -> None:
    assert loaded(tmp_path, "user: 'ä {q}'\nsystem: s\n") == Prompt("ä {q}", "s")


def test_a_relative_template_is_found_in_the_extra_roots(tmp_path: Path) -> None:
    (tmp_path / "p.yaml").write_text("user: x")
    assert load_prompt("p.yaml", {"NEMO_GYM_EXTRA_ROOTS": str(tmp_path)}) == Prompt("x")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("system: s", "the text `user`"),
        ("user: [1]", "the text `user`"),
        ("- user", "the text `user`"),
        ("user: u\nsystem: 5", "`system` is not a text"),
        ("user: 'a {'", "braces that are meant as such"),
        ("user: '{}'", "a place has no field name"),
        ("user: '{0}'", "a place has no field name"),
        ("user: [", "cannot be read as YAML"),
    ],
)
def test_a_template_that_cannot_work_is_refused_before_any_row(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        loaded(tmp_path, text)


def test_a_missing_template_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"prompt_config: nowhere\.yaml cannot be read"):
        load_prompt("nowhere.yaml", {"NEMO_GYM_EXTRA_ROOTS": str(tmp_path)})
