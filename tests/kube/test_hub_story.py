"""The story on a real cluster: two users of a JupyterHub, each in a pod, share GPUs.

The GPUs are simulated; Kubernetes, containers, chart, KubeSpawner, servers and kernels are real.
"""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from jupyter_gpushare.kube import names
from tests.kube.api import Refused
from tests.kube.audit import assert_only_granted, used
from tests.kube.control_plane import until
from tests.kube.lab import GPUS, NAMESPACE, Lab
from tests.story.front_end import Notebook, eventually
from tests.story.hub_process import Person

pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def alice(lab: Lab) -> Person:
    return lab.user("alice")


@pytest.fixture(scope="module")
def bob(lab: Lab) -> Person:
    return lab.user("bob")


def with_share(person: Person, path: str, gpu: float) -> Notebook:
    notebook = person.notebook("python3", path)
    person.rest("POST", f"gpushare/api/kernels/{notebook.kernel_id}", {"gpu": gpu})
    return notebook


def test_kubernetes_and_the_scheduler_agree_about_the_node(lab: Lab):
    assert len(lab.pods(names.COMPONENT_SLOT)) == GPUS
    node = lab.node()
    assert (node["gpus"], node["reasons"]) == (GPUS, [])
    assert lab.scheduler("GET", "status")["agents"] == [lab.cluster.name]
    # An agent connects before Kubernetes reports that its pod runs.
    until(
        lambda: lab.scheduler("GET", "status")["kubernetes"]["problems"] == [],
        "no problems are left",
    )


def test_the_check_finds_nothing_missing(lab: Lab):
    done = subprocess.run(
        [sys.executable, "-m", "jupyter_gpushare.cli", "kube", "check"],
        env={**os.environ, "KUBECONFIG": str(lab.cluster.control_plane.kubeconfig)},
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"node {lab.cluster.name}: {GPUS} GPUs, agent ready" in done.stdout


def test_users_share_a_gpu_and_one_gives_back_what_is_over_quota(
    lab: Lab, alice: Person, bob: Person
):
    """Each has half of a GPU, then Alice a whole one beyond her quota, until Bob needs it."""
    first, his = with_share(alice, "a.ipynb", 0.5), with_share(bob, "b.ipynb", 0.5)
    for notebook in (first, his):
        assert notebook.until("attached", within=60)["node"] == lab.cluster.name
        shown = notebook.ok(
            "import os; from jupyter_gpushare import simgpu; b = simgpu.alloc('20GiB'); "
            "b.fill(7); print(os.getuid())"
        )
        assert shown.strip() == "1000"
    assert first.view["gpu_uuid"] == his.view["gpu_uuid"], "they share one GPU"
    more = with_share(alice, "more.ipynb", 1)
    more.until("attached", within=60)
    more.ok("from jupyter_gpushare import simgpu; b = simgpu.alloc('30GiB'); b.fill(3)")
    cell = more.submit("simgpu.busy(3600)")
    eventually(lambda: more.view["busy"], "her cell runs")
    second = with_share(bob, "second.ipynb", 0.5)
    second.until("attached", within=60)
    eventually(lambda: more.view["state"] in ("pending", "suspended"), "she gives back", 60)
    assert "notice" in more.kinds()
    assert first.view["state"] == "attached"
    assert first.ok("print(b.nbytes == 20 * 2**30)").strip() == "True"
    second.shut_down()
    more.until("attached", within=60)
    more.interrupt()
    more.collect(cell)
    assert more.ok("print(b.nbytes == 30 * 2**30)").strip() == "True", "its memory came back"
    for notebook in (more, first, his):
        notebook.shut_down()
    eventually(lambda: not lab.leases(), "no lease is left")


def test_foreign_kernels_are_out_of_reach(alice: Person, bob: Person):
    """Both servers have uid 1000 and the same socket."""
    hers = with_share(alice, "private.ipynb", 0.5)
    hers.until("attached", within=60)
    his = bob.notebook("python3", "curious.ipynb")
    listed = his.ok("import os; print(sorted(os.listdir('/run/gpushare')))").strip()
    assert listed == "['agent.sock']"
    assert hers.kernel_id not in his.ok("import os; print(os.popen('ps -ef').read())")
    assert bob.refused("DELETE", f"gpushare/api/kernels/{hers.kernel_id}")[0] == 404
    assert hers.view["state"] == "attached"
    for notebook in (hers, his):
        notebook.shut_down()


def test_the_hook_prefers_the_node_with_room(lab: Lab, alice: Person):
    pod = lab.hub.pod("alice")
    [term] = pod["spec"]["affinity"]["nodeAffinity"][
        "preferredDuringSchedulingIgnoredDuringExecution"
    ]
    [field] = term["preference"]["matchFields"]
    assert (field["key"], field["values"]) == ("metadata.name", [lab.cluster.name])
    assert pod["spec"]["runtimeClassName"] == "nvidia"
    assert names.GPU_RESOURCE not in str(pod["spec"]["containers"])


def test_a_deleted_pod_ends_its_leases(lab: Lab, alice: Person):
    """As when the server is culled or evicted."""
    notebook = with_share(alice, "ends.ipynb", 1)
    notebook.until("attached", within=60)
    pod = lab.hub.pod("alice")
    path = lab.api.path(pod)
    lab.api.delete(path, gracePeriodSeconds=0)
    until(lambda: is_gone(lab, path), "the pod is gone")
    eventually(lambda: not lab.leases(), "its lease is gone", 10)
    notebook.ws.close()


def is_gone(lab: Lab, path: str) -> bool:
    try:
        lab.api.get(path)
    except Refused as error:
        return error.code == 404
    return False


def test_every_granted_verb_is_used_and_nothing_else_is_asked_for(lab: Lab):
    """The audit log of the API server against the chart's roles."""
    control_plane = lab.cluster.control_plane
    assert used(control_plane, NAMESPACE) == lab.granted()
    assert_only_granted(control_plane)
