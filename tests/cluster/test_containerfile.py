"""`cluster/Containerfile`: what it copies and runs is there, and the image is not root's."""

import json
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

REPOSITORY = Path(__file__).parents[2]
FILE = REPOSITORY / "cluster" / "Containerfile"


@pytest.fixture(scope="module")
def instructions() -> list[tuple[str, str]]:
    lines = [line for line in FILE.read_text().replace("\\\n", " ").splitlines() if line and not line.startswith("#")]
    return [(word, rest.strip()) for word, rest in (line.split(maxsplit=1) for line in lines)]


def of(instructions: list[tuple[str, str]], name: str) -> list[str]:
    return [rest for word, rest in instructions if word == name]


def test_a_linter_finds_nothing() -> None:
    if (hadolint := shutil.which("hadolint")) is None:
        pytest.skip("hadolint is not installed")
    done = subprocess.run([hadolint, FILE], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_what_is_copied_is_there_and_is_all_that_a_wheel_needs(instructions: list[tuple[str, str]]) -> None:
    copied = {name for rest in of(instructions, "COPY") if "--from" not in rest for name in rest.split()[:-1]}
    assert all((REPOSITORY / name).exists() for name in copied)
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())
    hatch = project["tool"]["hatch"]
    needed = {"pyproject.toml", project["project"]["readme"], *project["project"]["license-files"]}
    needed |= {*hatch["build"]["targets"]["wheel"]["packages"], Path(hatch["version"]["path"]).parts[0]}
    assert copied == needed


def test_the_user_is_not_root_and_the_command_runs(instructions: list[tuple[str, str]]) -> None:
    assert int(of(instructions, "USER")[-1]) > 0
    program, *arguments = json.loads(of(instructions, "CMD")[0])
    done = subprocess.run(
        [Path(sys.executable).parent / program, *arguments], capture_output=True, text=True, check=True
    )
    assert "Usage" in done.stdout


def test_bases_are_public_and_of_one_version_with_the_manifest(instructions: list[tuple[str, str]]) -> None:
    bases = of(instructions, "FROM")
    assert all(base.startswith(("docker.io/library/python:3.11", "docker.io/rayproject/ray:")) for base in bases)
    (version,) = [rest.partition("=")[2] for rest in of(instructions, "ARG") if "=" in rest]
    manifests = yaml.safe_load_all((REPOSITORY / "cluster" / "rayjob.yaml").read_text())
    assert [m["spec"]["rayClusterSpec"]["rayVersion"] for m in manifests if m["kind"] == "RayJob"] == [version]


def test_images_of_the_manifest_are_the_one_that_is_built() -> None:
    (built,) = re.findall(r"podman build .* -t (\S+) ", FILE.read_text())
    images = re.findall(r"image: (\S+)", (REPOSITORY / "cluster" / "rayjob.yaml").read_text())
    assert set(images) == {built}
