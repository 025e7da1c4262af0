"""`jupyter gpushare kube` and `scheduler --kubernetes` as commands."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from jupyter_gpushare.kube import names
from jupyter_gpushare.kube.chart_files import CHART
from tests.kube.control_plane import ControlPlane
from tests.kube.helm import Helm

NAMESPACE = "check-test"
OPERATOR = "check-operator"


def run(*arguments: str | Path, kubeconfig: Path | str = "/nowhere") -> tuple[int, str, str]:
    env = {**os.environ, "KUBECONFIG": str(kubeconfig)}
    command = [sys.executable, "-m", "jupyter_gpushare.cli", *map(str, arguments)]
    done = subprocess.run(
        command, capture_output=True, text=True, env=env, timeout=180, check=False
    )
    return done.returncode, done.stdout, done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("command", [("scheduler", "--kubernetes"), ("kube", "check")])
def test_without_a_cluster_there_is_one_error_line(
    command: tuple[str, ...], tmp_path: Path
) -> None:
    state = ("--state-dir", tmp_path) if command[0] == "scheduler" else ()
    status, _, errors = run(*command, *state)
    assert status == 2
    assert errors.startswith("error: no Kubernetes cluster")
    assert errors.count("\n") == 1


def test_the_chart_is_written_out(tmp_path: Path) -> None:
    status, output, _ = run("kube", "chart", tmp_path / "chart")
    assert status == 0
    assert output.startswith("wrote ")
    for path in CHART.rglob("*"):
        if path.is_file():
            written = tmp_path / "chart" / path.relative_to(CHART)
            assert written.read_bytes() == path.read_bytes()
    status, _, errors = run("kube", "chart", tmp_path / "chart")
    assert status == 1
    assert "is not empty" in errors


@pytest.fixture(scope="module")
def installed(
    control_plane: ControlPlane, helm: Helm, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ControlPlane]:
    control_plane.api.namespace(NAMESPACE)
    control_plane.api.namespace(OPERATOR)
    chart = Helm(tmp_path_factory.mktemp("helm"), control_plane.kubeconfig)
    values = {"gpus": {"maxPerNode": 2}, "gpuOperatorNamespace": OPERATOR}
    chart.install(values, NAMESPACE)
    control_plane.add_node("check0", gpus=2, **{names.MANAGED_LABEL: "true"})
    yield control_plane
    control_plane.api.delete("/api/v1/nodes/check0")
    chart.uninstall(NAMESPACE)


def missing(cluster: ControlPlane) -> tuple[int, list[str]]:
    options = ("--namespace", NAMESPACE, "--operator-namespace", OPERATOR, "--json")
    status, output, errors = run("kube", "check", *options, kubeconfig=cluster.kubeconfig)
    assert output, errors
    body = json.loads(output)
    found = [one for one in body["checks"] if one["verdict"] == "missing"]
    assert status == (1 if found else 0)
    assert body["ok"] == (not found)
    return status, [f"{one['subject']}: {one['message']}" for one in found]


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_check_names_what_is_missing(installed: ControlPlane) -> None:
    status, found = missing(installed)
    text = "\n".join(found)
    assert status == 1
    assert 'RuntimeClass "nvidia" does not exist' in text
    assert "node check0: GPUs not reserved: slots hold 0 of 2 GPUs" in text
    assert "scheduler: 0 of 1 replica ready" in text
    assert "permission" not in text
