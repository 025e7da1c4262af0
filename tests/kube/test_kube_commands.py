"""`jupyter gpushare kube` and `scheduler --kubernetes` as commands."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from jupyter_gpushare.kube import names
from jupyter_gpushare.kube.api_client import ClusterApi
from jupyter_gpushare.kube.chart_files import CHART
from jupyter_gpushare.kube.check_facts import read_facts
from jupyter_gpushare.kube.checks import check_cluster
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


ROLES = [
    ("ClusterRole", "", "nodes", "list"),
    ("ClusterRole", "", "nodes", "watch"),
    ("ClusterRole", "authentication.k8s.io", "tokenreviews", "create"),
    *(
        ("Role", place, "pods", verb)
        for place in (NAMESPACE, OPERATOR)
        for verb in ("list", "watch")
    ),
]
"""Kind, the namespace of a Role or else the group of the resource, resource and verb."""


async def missing_permissions(kubeconfig: Path) -> list[str]:
    """In this process, since a new one takes seconds."""
    api = ClusterApi(kubeconfig=str(kubeconfig))
    await api.open()
    try:
        results = check_cluster(await read_facts(api, NAMESPACE, OPERATOR))
    finally:
        await api.close()
    return [
        result.message
        for result in results
        if result.subject == "permission" and result.verdict == "missing"
    ]


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_check_names_each_permission_that_was_taken_away(installed: ControlPlane) -> None:
    """As the administrator, and as the scheduler itself."""
    installed.restricted.add(NAMESPACE)
    token = installed.account_token(NAMESPACE, names.SCHEDULER_ACCOUNT)
    own = installed.certificates.with_token("check-scheduler", token)
    for kind, scope, resource, verb in ROLES:
        place = f"/namespaces/{scope}" if kind == "Role" else ""
        path = f"/apis/rbac.authorization.k8s.io/v1{place}/{kind.lower()}s/gpushare-scheduler"
        before = installed.api.get(path)["rules"]
        left = [
            {**rule, "verbs": [v for v in rule["verbs"] if v != verb]}
            if resource in rule["resources"]
            else rule
            for rule in before
        ]
        installed.api.merge(path, {"rules": [rule for rule in left if rule["verbs"]]})
        try:
            named = f"{verb} {resource}"
            if scope:
                named += f" in namespace {scope}" if kind == "Role" else f".{scope}"
            for kubeconfig in (installed.kubeconfig, own):
                found = asyncio.run(missing_permissions(kubeconfig))
                assert len(found) == 1, found
                assert f"may not {named}" in found[0]
        finally:
            installed.api.merge(path, {"rules": before})
