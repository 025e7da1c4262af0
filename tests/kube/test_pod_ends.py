"""Leases end with their pod: within 10 s, or within 10 s after the agent is connected again."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

import pytest

from jupyter_gpushare.kube import names
from tests.kube.api import Refused
from tests.kube.control_plane import until
from tests.kube.lab import NAMESPACE, Lab
from tests.kube.lines import Line
from tests.story.front_end import Notebook, eventually
from tests.story.hub_process import Person

pytestmark = pytest.mark.timeout(600)
DAEMONSET = f"/apis/apps/v1/namespaces/{NAMESPACE}/daemonsets/gpushare-agent"
NOWHERE = {"gpushare-test/nowhere": "true"}


def holding(person: Person) -> Notebook:
    """A notebook with half a GPU."""
    notebook = person.notebook("python3", "ends.ipynb")
    person.rest("POST", f"gpushare/api/kernels/{notebook.kernel_id}", {"gpu": 0.5})
    notebook.until("attached", within=120)
    return notebook


def is_connected(lab: Lab) -> bool:
    return lab.cluster.name in lab.scheduler("GET", "status")["agents"]


@contextlib.contextmanager
def agent_away(lab: Lab) -> Iterator[None]:
    """As while it is upgraded."""

    def select(value: str | None) -> None:
        selector = dict.fromkeys(NOWHERE, value)
        template = {"spec": {"nodeSelector": selector}}
        lab.api.merge(DAEMONSET, {"spec": {"template": template}})

    select("true")
    until(lambda: not lab.pods(names.COMPONENT_AGENT), "the agent is gone")
    try:
        yield
    finally:
        select(None)


@contextlib.contextmanager
def silent_line(lab: Lab) -> Iterator[None]:
    """Between agent and scheduler."""
    [agent], [scheduler] = lab.pods(names.COMPONENT_AGENT), lab.pods("scheduler")
    line = Line(lab.cluster.pids(agent).pop(), [scheduler["status"]["podIP"]])
    with contextlib.closing(line), line.silent():
        until(lambda: not is_connected(lab), "the scheduler has seen it")
        yield


def undisturbed(_lab: Lab) -> AbstractContextManager[None]:
    return contextlib.nullcontext()


def forced(lab: Lab, pod: Any) -> None:
    """As for a node that is lost: nothing in the pod can say that it ends."""
    lab.api.delete(lab.api.path(pod), gracePeriodSeconds=0)
    lab.cluster.kill_pod_processes(pod)


def graceful(lab: Lab, pod: Any) -> None:
    """As for a pod that is evicted."""
    lab.api.delete(lab.api.path(pod), gracePeriodSeconds=2)


@pytest.mark.parametrize(
    ("trouble", "delete"),
    [
        (undisturbed, forced),
        (undisturbed, graceful),
        (agent_away, forced),
        (agent_away, graceful),
        (silent_line, forced),
    ],
)
def test_a_lease_ends_with_its_pod(
    lab: Lab,
    trouble: Callable[[Lab], AbstractContextManager[None]],
    delete: Callable[[Lab, Any], None],
):
    notebook = holding(lab.user("alice"))
    pod = lab.hub.pod("alice")
    with trouble(lab):
        delete(lab, pod)
        until(lambda: is_gone(lab, lab.api.path(pod)), "the pod is gone")
        until(lambda: not lab.cluster.pids(pod), "its processes have ended")
        begun = time.monotonic()
    until(lambda: is_connected(lab), "the agent is connected")
    connected = time.monotonic()
    eventually(lambda: not lab.leases(), "its lease has ended", 10)
    now = time.monotonic()
    sys.stdout.write(
        f"the lease ended {now - begun:.1f} s after the pod, "
        f"{now - connected:.1f} s after the agent was seen connected\n"
    )
    notebook.ws.close()


def is_gone(lab: Lab, path: str) -> bool:
    try:
        lab.api.get(path)
    except Refused as error:
        return error.code == 404
    return False
