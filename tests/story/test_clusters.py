"""`gpu.cluster`: workers that start together with a share each, and end together."""

from __future__ import annotations

import os
import signal
import socket
import ssl
import sys

import psutil
import pytest

from tests.environments import ROOT, python_of
from tests.story.front_end import eventually
from tests.story.jupyter_process import Server

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]
START = "from jupyter_gpushare import gpu; c = gpu.cluster({}); print('connected', c.n)"
UUIDS = """
def use():
    from jupyter_gpushare import simgpu
    import os
    b = simgpu.alloc('1GiB')
    return simgpu.device_uuid(), os.getpid()
"""


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    lab = Server(tmp_path_factory.mktemp("w"), gpus=1)
    try:
        yield lab.start()
    finally:
        lab.stop()
        sys.stdout.write(lab.logs())


@pytest.fixture
def notebook(lab):
    made = []

    def make(spec="plain"):
        made.append(lab.notebook(spec, f"{spec}{len(made)}.ipynb"))
        return made[-1]

    yield make
    for one in made:
        one.shut_down()
    lab.nothing_is_left()


def engines_spec(lab) -> str:
    """A kernelspec of the environment with ipyparallel; the engines import `simgpu` from here."""
    argv = [str(python_of("engines")), "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    spec = {"argv": argv, "display_name": "engines", "language": "python"}
    lab.kernelspec("engines", {**spec, "env": {"PYTHONPATH": str(ROOT)}})
    return "engines"


@pytest.mark.parametrize("backend", ["dask", "ipyparallel"])
def test_workers_have_a_share_each_and_release_it_together(lab, notebook, backend):
    nb = notebook(engines_spec(lab) if backend == "ipyparallel" else "plain")
    shown = nb.ok(START.format(f"2, 0.5, backend='{backend}'"), 60)
    assert "INFO" not in shown, "no log lines of the library"
    eventually(lambda: lab.allocated() == 1, "both shares")
    call = {
        "dask": "r = list(c.client.run(use).values())",
        "ipyparallel": "r = list(c.client[:].apply_sync(use))",
    }
    nb.ok(UUIDS)
    text = nb.ok(f"{call[backend]}\nprint(len({{pid for _, pid in r}}), {{uuid for uuid, _ in r}})")
    assert text.startswith("2 {'SIM-GPU-")
    nb.ok("c.close()")
    eventually(lambda: lab.allocated() == 0, "no share")


def test_a_cluster_waits_as_a_whole_and_can_be_interrupted(lab, notebook):
    holder, nb = notebook("half"), notebook()
    holder.until("attached")
    cell = nb.submit(START.format("2, 0.5"))
    nb.until_shown(cell, "1 of 2 pods fits")
    assert lab.allocated() == 0.5
    nb.interrupt()
    assert "the wait for the cluster was stopped" in nb.collect(cell).text


def test_a_worker_that_dies_ends_the_others(lab, notebook):
    nb = notebook()
    nb.ok(START.format("2, 0.25"), 60)
    pids = nb.ok("import os; print(*c.client.run(os.getpid).values())").split()
    os.kill(int(pids[0]), signal.SIGKILL)
    eventually(lambda: lab.allocated() == 0, "no share is left")
    assert "ended" in nb.ok("print(c.status()['state'])")


def test_a_restart_of_the_kernel_ends_its_cluster(lab, notebook):
    nb = notebook()
    nb.ok(START.format("2, 0.5"), 60)
    eventually(lambda: lab.allocated() == 1, "both shares")
    lab.rest("POST", f"api/kernels/{nb.kernel_id}/restart")
    eventually(lambda: lab.allocated() == 0, "no share is left")


def test_dask_answers_nobody_without_the_key_of_the_cluster(notebook):
    pytest.importorskip("distributed")
    nb = notebook()
    nb.ok(START.format("1, 0.5, backend='dask'"), 60)
    scheme, address = nb.ok("print(c.client.cluster.scheduler_address)").strip().split("://")
    assert scheme == "tls"
    host, port = address.split(":")
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with (
        socket.create_connection((host, int(port)), timeout=60) as plain,
        pytest.raises(ssl.SSLError, match="CERTIFICATE_REQUIRED"),
        context.wrap_socket(plain) as connection,
    ):
        connection.recv(1)


@pytest.fixture(scope="module")
def two_nodes(tmp_path_factory):
    lab = Server(tmp_path_factory.mktemp("two"), gpus=1, remote=True)
    try:
        lab.start()
        lab.start_other_agent("other")
        eventually(lambda: len(lab.rest("GET", "gpushare/api/nodes")["nodes"]) == 2, "two nodes")
        yield lab
    finally:
        lab.stop()
        sys.stdout.write(lab.logs())


SEVERAL = START.format("2, 0.75, priority='train', several_nodes=True, host='127.0.0.2'")


def test_workers_on_two_nodes_start_and_end_together(two_nodes):
    pytest.importorskip("distributed")
    nb = two_nodes.notebook("plain", "two.ipynb")
    nb.ok(SEVERAL, 60)
    address = nb.ok("print(c.client.cluster.scheduler_address)")
    assert address.startswith("tls://127.0.0.2:")
    assert nb.ok("print(len({pod['lease']['node'] for pod in c.status()['pods']}))") == "2\n"
    nb.ok(UUIDS)
    text = nb.ok("r = list(c.client.run(use).values())\nprint(len(r), len({pid for _, pid in r}))")
    assert text == "2 2\n"
    pids = nb.ok("print(*[pid for _, pid in r])").split()
    nb.ok("c.close()")
    eventually(lambda: not any(psutil.pid_exists(int(pid)) for pid in pids), "no worker")
    eventually(lambda: not _running(two_nodes), "no share on either node")
    nb.shut_down()


def test_a_worker_that_dies_on_one_node_ends_those_of_the_other(two_nodes):
    pytest.importorskip("distributed")
    nb = two_nodes.notebook("plain", "dies.ipynb")
    nb.ok(SEVERAL, 60)
    pids = nb.ok("import os; print(*c.client.run(os.getpid).values())").split()
    os.kill(int(pids[0]), signal.SIGKILL)
    eventually(lambda: not _running(two_nodes), "no share on either node")
    eventually(lambda: not psutil.pid_exists(int(pids[1])), "no worker")
    nb.shut_down()


def test_the_end_of_the_kernel_ends_workers_on_all_nodes(two_nodes):
    pytest.importorskip("distributed")
    nb = two_nodes.notebook("plain", "ends.ipynb")
    nb.ok(SEVERAL, 60)
    nb.shut_down()
    eventually(lambda: not _running(two_nodes), "no share on either node")


def test_a_python_that_another_node_lacks_is_named(two_nodes):
    pytest.importorskip("distributed")
    nb = two_nodes.notebook("plain", "lacks.ipynb")
    nb.ok("import sys; sys.executable = '/nowhere/python'")
    result = nb.run(SEVERAL)
    assert "On every node the workers need /nowhere/python" in result.text
    eventually(lambda: not _running(two_nodes), "no share on either node")
    nb.shut_down()


def _running(lab) -> list[dict]:
    return lab.rest("GET", "gpushare/api/workloads")["workloads"]
