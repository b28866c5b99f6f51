"""Run-level skills: which ones a run used, as the stamp that every flat row carries.

Source: protocol §5.9.
"""

import hashlib
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from gym_ray.errors import ConfigError
from gym_ray.rows.locating import locate

SKILL_FILE = "SKILL.md"
HASH_DIGITS = 12


def skills_reference(path: str, environ: Mapping[str, str] = os.environ) -> dict[str, Any]:
    """`{"path", "hash", "skills"}` of a folder of skill folders. Reads every file in it.

    Raises:
        ConfigError: no such folder, no skill in it, or a skill without a proper `SKILL.md`.
    """
    root = locate(path, environ)
    if not root.is_dir():
        raise ConfigError(f"skills.path: {path} is {'not a folder' if root.exists() else 'missing'}")
    # Version control and editors keep hidden folders; skills are never hidden
    folders = sorted(child for child in root.iterdir() if child.is_dir() and not child.name.startswith("."))
    if not folders:
        raise ConfigError(f"skills.path: {path} has no skill: expected a folder with a {SKILL_FILE} for each")
    return {"path": path, "hash": _hash(root), "skills": [_skill(folder) for folder in folders]}


def _skill(folder: Path) -> dict[str, Any]:
    file = folder / SKILL_FILE
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"skills.path: {file} cannot be read: {error}") from None
    front = _front_matter(text, file)
    name, metadata = front.get("name"), front.get("metadata")
    if not isinstance(name, str) or not name:
        raise ConfigError(f"skills.path: {file}: its front matter has no name")
    version = metadata.get("version") if isinstance(metadata, dict) else None
    return {
        "name": name,
        "description": front.get("description"),
        "version": None if version is None else str(version),
    }


def _front_matter(text: str, file: Path) -> dict[str, Any]:
    lines = text.splitlines()
    if not lines or lines[0].strip() != "---":
        raise ConfigError(f"skills.path: {file}: expected front matter between two lines of ---, found none")
    end = next((number for number, line in enumerate(lines[1:], 1) if line.strip() == "---"), None)
    if end is None:
        raise ConfigError(f"skills.path: {file}: its front matter has no second line of ---")
    try:
        front = yaml.safe_load("\n".join(lines[1:end]))
    except yaml.YAMLError as error:
        raise ConfigError(f"skills.path: {file}: its front matter is not YAML: {error}") from None
    if not isinstance(front, dict):
        raise ConfigError(f"skills.path: {file}: expected a mapping as front matter")
    return front


def _hash(root: Path) -> str:
    digest = hashlib.sha256()
    for file in sorted(_files(root)):
        digest.update(file.relative_to(root).as_posix().encode() + b"\0" + file.read_bytes() + b"\0")
    return digest.hexdigest()[:HASH_DIGITS]


def _files(root: Path) -> Iterator[Path]:
    for child in root.iterdir():
        if child.is_file():
            yield child
        elif not child.name.startswith("."):
            yield from (file for file in child.rglob("*") if file.is_file())
