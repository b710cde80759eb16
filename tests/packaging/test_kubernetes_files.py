"""The files for Kubernetes. There is no cluster to try them on: their form, and what they name, is checked."""

from __future__ import annotations

from typing import Any

import yaml
from tests.docs.markdown import ROOT

from tidemark.config import Configuration, Options
from tidemark.config.loader import load_environment
from tidemark.config.modes import HighAvailability

FOLDER = ROOT / "deploy" / "kubernetes"


def documents(name: str) -> dict[str, Any]:
    """What a file describes, by kind."""
    return {found["kind"]: found for found in yaml.safe_load_all((FOLDER / name).read_text(encoding="utf-8"))}


def driver() -> dict[str, Any]:
    """The pod of the driver."""
    found: dict[str, Any] = documents("driver.yaml")["Job"]["spec"]["template"]
    return found


def executor() -> dict[str, Any]:
    """The template for pods of executors."""
    found: dict[str, Any] = documents("executor-pod.yaml")["Pod"]
    return found


def container(pod: dict[str, Any]) -> dict[str, Any]:
    (found,) = pod["spec"]["containers"]
    assert isinstance(found, dict)
    return found


def settings() -> Configuration:
    return load_environment({entry["name"]: entry["value"] for entry in container(driver())["env"]})


def test_files_are_what_kubernetes_reads() -> None:
    assert {kind: found["apiVersion"] for kind, found in documents("driver.yaml").items()} == {
        "Service": "v1",
        "Job": "batch/v1",
    }
    for pod in (driver(), executor()):
        assert set(pod["spec"]) <= {
            "restartPolicy", "serviceAccountName", "terminationGracePeriodSeconds", "securityContext",
            "containers", "volumes",
        }  # fmt: skip
        assert set(container(pod)) <= {"name", "image", "args", "env", "volumeMounts"}
        volumes = {volume["name"] for volume in pod["spec"]["volumes"]}
        assert {mount["name"] for mount in container(pod)["volumeMounts"]} == volumes
        assert all(isinstance(entry["value"], str) for entry in container(pod)["env"])
        assert f"--uid {pod['spec']['securityContext']['runAsUser']} " in (ROOT / "Dockerfile").read_text()


def test_executors_reach_the_driver_by_the_service() -> None:
    service = documents("driver.yaml")["Service"]
    assert service["spec"]["selector"] == driver()["metadata"]["labels"]
    found = settings().to_dict()
    assert found["spark.driver.host"] == service["metadata"]["name"]
    ports = {str(port["port"]) for port in service["spec"]["ports"]}
    assert {found["spark.driver.port"], found["spark.driver.blockManager.port"]} == ports
    # Spark takes the only container of a template as its own.
    assert executor()["kind"] == "Pod"
    mounted = {mount["name"]: mount["mountPath"] for mount in container(driver())["volumeMounts"]}
    assert found["spark.kubernetes.executor.podTemplateFile"] == f"{mounted['job']}/executor-pod.yaml"


def test_a_driver_comes_back_and_checkpoints_are_where_executors_see_them() -> None:
    configuration = settings()
    assert driver()["spec"]["restartPolicy"] == "OnFailure"
    assert configuration.get(Options.HIGH_AVAILABILITY) is HighAvailability.FILESYSTEM
    places = []
    for pod in (driver(), executor()):
        (claim,) = [
            v["persistentVolumeClaim"] for v in pod["spec"]["volumes"] if "persistentVolumeClaim" in v
        ]
        paths = {mount["name"]: mount["mountPath"] for mount in container(pod)["volumeMounts"]}
        places.append((claim, paths["checkpoints"]))
    assert places[0] == places[1]
    shared = f"file://{places[0][1]}"
    assert configuration.get(Options.CHECKPOINTS_DIR) == shared
    assert str(configuration.get(Options.HIGH_AVAILABILITY_STORAGE)).startswith(shared)
