"""`cluster/rayjob.yaml`: every field is one of KubeRay's `ray.io/v1`, and the clocks fit into each other."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.cluster.commands import parsed

MANIFEST = Path(__file__).parents[2] / "cluster" / "rayjob.yaml"
KUBE = {"template": dict, "rayStartParams": dict}
FIELDS: dict[str, dict[str, type]] = {
    "job": {
        "entrypoint": str, "submissionMode": str, "backoffLimit": int, "activeDeadlineSeconds": int,
        "shutdownAfterJobFinishes": bool, "ttlSecondsAfterFinished": int, "runtimeEnvYAML": str,
        "rayClusterSpec": dict,
    },
    "cluster": {"rayVersion": str, "headGroupSpec": dict, "workerGroupSpecs": list},
    "head": KUBE,
    "workers": {"groupName": str, "replicas": int, "minReplicas": int, "maxReplicas": int, **KUBE},
    "pod": {"terminationGracePeriodSeconds": int, "securityContext": dict, "containers": list, "volumes": list},
    "container": {
        "name": str, "image": str, "lifecycle": dict, "ports": list, "resources": dict, "volumeMounts": list,
    },
}  # fmt: skip
"""The fields that the manifest uses, by where they are. Source: `ray-operator/apis/ray/v1` of KubeRay."""


@pytest.fixture(scope="module")
def documents() -> dict[str, Any]:
    return {document["kind"]: document for document in yaml.safe_load_all(MANIFEST.read_text())}


@pytest.fixture(scope="module")
def job(documents: dict[str, Any]) -> dict[str, Any]:
    spec: dict[str, Any] = documents["RayJob"]["spec"]
    return spec


@pytest.fixture(scope="module")
def pods(job: dict[str, Any]) -> list[dict[str, Any]]:
    groups = [job["rayClusterSpec"]["headGroupSpec"], *job["rayClusterSpec"]["workerGroupSpecs"]]
    return [group["template"]["spec"] for group in groups]


def check(value: dict[str, Any], kind: str) -> None:
    for name, content in value.items():
        assert name in FIELDS[kind], f"{kind}: {name}"
        assert type(content) is FIELDS[kind][name], f"{kind}: {name}: {content!r}"


def test_every_field_is_known_and_of_its_type(
    documents: dict[str, Any], job: dict[str, Any], pods: list[dict[str, Any]]
) -> None:
    assert documents["RayJob"]["apiVersion"] == "ray.io/v1"
    assert re.fullmatch(r"[a-z]([-a-z0-9]{0,45}[a-z0-9])?", documents["RayJob"]["metadata"]["name"])
    cluster = job["rayClusterSpec"]
    check(job, "job")
    check(cluster, "cluster")
    check(cluster["headGroupSpec"], "head")
    for workers in cluster["workerGroupSpecs"]:
        check(workers, "workers")
        assert workers["minReplicas"] <= workers["replicas"] <= workers["maxReplicas"]
    for group in (cluster["headGroupSpec"], *cluster["workerGroupSpecs"]):
        assert all(isinstance(value, str) for value in group["rayStartParams"].values())
    for pod in pods:
        check(pod, "pod")
        for container in pod["containers"]:
            check(container, "container")
    assert job["submissionMode"] in ("K8sJobMode", "HTTPMode", "SidecarMode", "InteractiveMode")


def test_a_retry_finds_the_records_of_the_last_cluster(
    documents: dict[str, Any], job: dict[str, Any], pods: list[dict[str, Any]]
) -> None:
    assert job["backoffLimit"] > 0
    assert job["shutdownAfterJobFinishes"]
    run = parsed(job["entrypoint"].split()[1:])
    assert run["resume"] is True
    claim = documents["PersistentVolumeClaim"]
    assert claim["spec"]["accessModes"] == ["ReadWriteMany"]
    for pod in pods:  # the driver may be on any of them
        (volume,) = pod["volumes"]
        assert volume["persistentVolumeClaim"]["claimName"] == claim["metadata"]["name"]
        (mount,) = pod["containers"][0]["volumeMounts"]
        assert mount["name"] == volume["name"]
        assert all(str(path).startswith(f"{mount['mountPath']}/") for path in (run["output"], *run["input_"]))


def test_what_drains_has_the_time_for_it(job: dict[str, Any], pods: list[dict[str, Any]]) -> None:
    run = parsed(job["entrypoint"].split()[1:])
    settings = dict(override.split("=") for override in run["overrides"])
    stop_s = int(yaml.safe_load(job["runtimeEnvYAML"])["env_vars"]["RAY_JOB_STOP_WAIT_TIME_S"])
    head = pods[0]
    assert float(settings["grace_s"]) < stop_s < head["terminationGracePeriodSeconds"]
    assert all(pod["terminationGracePeriodSeconds"] > 30 for pod in pods)  # in which Ray drains a node
    stop = head["containers"][0]["lifecycle"]["preStop"]["exec"]["command"]
    assert stop[:2] == ["gym-ray", "stop"]
    assert str(parsed(stop[1:])["run"]) == str(run["output"])


def test_no_container_is_root(pods: list[dict[str, Any]]) -> None:
    for pod in pods:
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["securityContext"]["runAsUser"] > 0
