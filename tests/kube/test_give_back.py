"""A node is given back to Kubernetes and shared again, by the commands of docs/how-to/kubernetes.md
in the scheduler's pod.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

import pytest
from kubernetes import client, config
from kubernetes.stream import stream

from jupyter_gpushare.kube import names
from tests.kube.control_plane import until
from tests.kube.lab import GPUS, NAMESPACE, Lab
from tests.story.front_end import eventually

pytestmark = pytest.mark.timeout(600)


def execute(lab: Lab, *command: str) -> str:
    """`kubectl exec` in the scheduler's pod: the output and errors."""
    options = {"stdout": True, "stderr": True, "stdin": False, "tty": False}
    with config.new_client_from_config(str(lab.cluster.control_plane.kubeconfig)) as api:
        call = client.CoreV1Api(api).connect_get_namespaced_pod_exec
        return stream(call, "gpushare-scheduler-0", NAMESPACE, command=list(command), **options)


def label(lab: Lab, value: str | None) -> None:
    lab.cluster.control_plane.label_node(lab.cluster.name, **{names.MANAGED_LABEL: value})


def uncordoned(lab: Lab, node: str) -> bool:
    """What the command answered is part of the output of a failed test."""
    said = execute(lab, "jupyter-gpushare", "uncordon", node)
    sys.stdout.write(f"uncordon: {said}\n")
    return f"Node {node} accepts workloads." in said


def timed(condition: Callable[[], object], what: str) -> None:
    """The time is in the output of `pytest -rP`."""
    begun = time.monotonic()
    until(condition, what, 120)
    sys.stdout.write(f"{what} after {time.monotonic() - begun:.2f} s\n")


def reserved(lab: Lab) -> list[object]:
    return [*lab.pods(names.COMPONENT_SLOT), *lab.pods(names.COMPONENT_AGENT)]


def test_a_node_is_given_back_and_shared_again(lab: Lab):
    alice, node = lab.user("alice"), lab.cluster.name
    notebook = alice.notebook("python3", "drained.ipynb")
    alice.rest("POST", f"gpushare/api/kernels/{notebook.kernel_id}", {"gpu": 0.5})
    notebook.until("attached", within=120)
    try:
        said = execute(lab, "jupyter-gpushare", "drain", node)
        assert f"Node {node} is drained." in said, said
        eventually(lambda: notebook.view["state"] == "pending", "it waits for another node")
        label(lab, None)
        timed(lambda: not lab.pods(names.COMPONENT_SLOT), "slots are gone")
        until(lambda: not reserved(lab), "the agent is gone too")
    finally:
        label(lab, names.MANAGED_VALUE)
        until(lambda: uncordoned(lab, node), "the node accepts workloads")
    timed(lab.is_ready, "the node is ready")
    assert len(lab.pods(names.COMPONENT_SLOT)) == GPUS
    notebook.until("attached", within=120)
    notebook.shut_down()
    eventually(lambda: not lab.leases(), "no lease is left")
