import hashlib
from pathlib import Path

import pytest

from gym_ray.errors import ConfigError
from gym_ray.rows.skills import skills_reference

FRONT = "---\nname: mapping\ndescription: Draws maps.\nmetadata: {version: 1.0}\n---\nText\n"


def skill(root: Path, name: str, text: str = FRONT) -> Path:
    (root / name).mkdir(parents=True)
    (root / name / "SKILL.md").write_text(text)
    return root


def test_the_reference_names_the_path_as_given_and_every_skill(tmp_path: Path) -> None:
    skill(tmp_path, "b")
    skill(tmp_path, "a", "---\nname: asking\n---\n")
    reference = skills_reference(str(tmp_path), {})
    assert reference["path"] == str(tmp_path)
    assert reference["skills"] == [
        {"name": "asking", "description": None, "version": None},
        {"name": "mapping", "description": "Draws maps.", "version": "1.0"},
    ]


def test_the_hash_covers_every_file_with_its_path(tmp_path: Path) -> None:
    skill(tmp_path, "a", FRONT)
    (tmp_path / "a" / "data").mkdir()
    (tmp_path / "a" / "data" / "x.bin").write_bytes(b"\0\1")
    text = b"a/SKILL.md\0" + FRONT.encode() + b"\0" + b"a/data/x.bin\0" + b"\0\1" + b"\0"
    assert skills_reference(str(tmp_path), {})["hash"] == hashlib.sha256(text).hexdigest()[:12]


def test_hidden_folders_are_no_skills(tmp_path: Path) -> None:
    before = skills_reference(str(skill(tmp_path, "a")), {})
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git" / "HEAD").write_text("x")
    assert skills_reference(str(tmp_path), {}) == before


def test_a_relative_path_is_searched_and_stays_as_given(tmp_path: Path) -> None:
    skill(tmp_path / "skills", "a")
    assert skills_reference("skills", {"NEMO_GYM_EXTRA_ROOTS": str(tmp_path)})["path"] == "skills"


def test_a_path_that_is_missing_or_a_file_or_empty_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "empty").mkdir()
    for name, message in (("nowhere", "is missing"), ("file", "is not a folder"), ("empty", "has no skill")):
        with pytest.raises(ConfigError, match=message):
            skills_reference(str(tmp_path / name), {})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("no front matter", "found none"),
        ("", "found none"),
        ("---\nname: a\n", "no second line of ---"),
        ("---\nname: [\n---\n", "is not YAML"),
        ("---\n- a\n---\n", "expected a mapping"),
        ("---\ndescription: a\n---\n", "has no name"),
        ("---\nname: 5\n---\n", "has no name"),
    ],
)
def test_a_skill_without_proper_front_matter_is_refused(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        skills_reference(str(skill(tmp_path, "a", text)), {})


def test_a_skill_folder_without_its_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    with pytest.raises(ConfigError, match=r"a/SKILL\.md cannot be read"):
        skills_reference(str(tmp_path), {})
