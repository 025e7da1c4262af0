"""Effects of policy rules: idle notebooks, waits that are too long, a drained node, a kernelspec
with an unknown key.
"""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.story.front_end import eventually
from tests.story.jupyter_process import POLICY, Server

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]
FILL = """
from jupyter_gpushare import simgpu
b = simgpu.alloc('6GiB')
b.fill(3)
print(simgpu.device_uuid())
"""
CHECK = "print(b.sum() == 3 * b.nbytes)"


def use(server: Server, rules: str) -> None:
    """Write the policy with these rules, and wait until it is in force."""
    before = gpushare(server, "status", "--json")
    (server.folder / "gpushare.yaml").write_text(
        POLICY.replace("notice: 5s", f"notice: 5s, rules: {rules}")
    )
    eventually(lambda: gpushare(server, "status", "--json") != before, "the policy is in force")


def gpushare(server: Server, *args: str) -> str:
    env = os.environ | {"GPUSHARE_STATE": str(server.state)}
    done = subprocess.run(
        [sys.executable, "-m", "jupyter_gpushare.cli", *args],
        env=env,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def messages(notebook, kind: str) -> list[str]:
    return [event["message"] for event in notebook.view["events"] if event["kind"] == kind]


def test_an_idle_notebook_is_saved_releases_its_gpu_and_continues_at_its_next_cell(start_server):
    server = start_server()
    a = server.notebook("half", "a.ipynb")
    a.ok(FILL)
    pid = a.pid
    use(server, "{idle: {warn: 1s, suspend: 7s, release: 14s}}")
    eventually(lambda: messages(a, "notice"), "announced")
    assert "defaults.rules.idle.suspend" in messages(a, "notice")[0]
    assert a.view["notice_deadline"]
    a.until("suspended")
    held = eventually(
        lambda: (view := a.view)["state"] == "pending" and view["reason"] and view, "released"
    )
    assert held["reason"]["code"] == "Held"
    assert "defaults.rules.idle.release" in messages(a, "released")[-1]
    eventually(lambda: server.allocated() == 0, "it holds nothing")
    assert a.ok(CHECK).splitlines()[-1] == "True", "its memory is restored"
    assert a.pid == pid
    assert a.view["state"] == "attached"
    a.shut_down()
    server.nothing_is_left()


def test_a_cell_that_waits_too_long_is_refused_with_the_rule(start_server):
    server = start_server()
    use(server, "{max_waiting: 5s}")
    never = server.notebook("build", "never.ipynb")
    refused = never.run("print('ran')")
    assert not refused.ok
    assert "defaults.rules.max_waiting" in refused.text
    assert "ran" not in refused.text
    assert never.view["state"] == "detached"
    assert "defaults.rules.max_waiting" in never.view["reason"]["message"]
    never.shut_down()


def test_notebooks_of_a_drained_node_continue_when_it_is_back(start_server):
    server = start_server()
    node = server.status()["node"]
    a = server.notebook("half", "a.ipynb")
    a.ok(FILL)
    assert "wait for this node" in gpushare(server, "drain", node, "--timeout", "60")
    assert "is drained" in gpushare(server, "drain", node)
    view = a.until("pending")
    eventually(lambda: a.view["reason"]["code"] == "NodeNotReady", "the reason")
    assert "scheduling disabled" in a.view["reason"]["message"], view
    (row,) = server.rest("GET", "gpushare/api/nodes")["nodes"]
    assert (row["status"], row["cordoned"]) == ("Not ready", True)
    assert "accepts workloads" in gpushare(server, "uncordon", node)
    assert a.ok(CHECK).splitlines()[-1] == "True"
    assert [
        line.split()[0] for line in gpushare(server, "pools").splitlines() if "Ready" in line
    ] == ["default"]
    a.shut_down()


def test_a_kernelspec_with_an_unknown_key_starts_with_a_message(start_server):
    server = start_server()
    argv = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    config = {
        "provisioner_name": "gpushare-provisioner",
        "config": {"gpu": 0.1, "proyect": "vision"},
    }
    spec = {
        "argv": argv,
        "display_name": "typo",
        "language": "python",
        "metadata": {"kernel_provisioner": config},
    }
    server.kernelspec("typo", spec)
    a = server.notebook("typo", "typo.ipynb")
    a.ok("1")
    assert any("'proyect' (did you mean 'project'?)" in text for text in messages(a, "refused"))
    a.shut_down()


def test_a_notebook_that_runs_too_long_gets_a_notice_and_its_memory_back_on_request(start_server):
    server = start_server()
    a = server.notebook("half", "a.ipynb")
    a.ok(FILL)
    use(server, "{max_running: 10s}")
    running = a.submit("while True:\n    simgpu.busy(0.05)")
    eventually(lambda: messages(a, "notice"), "the notice")
    assert "defaults.rules.max_running" in messages(a, "notice")[0]
    a.until("detached", within=60)
    kinds = a.kinds()
    assert kinds.index("notice") < kinds.index("suspended")
    assert not a.collect(running).ok
    eventually(lambda: server.allocated() == 0, "its GPU is free")
    use(server, "{max_running: 8h}")
    server.rest("POST", f"gpushare/api/kernels/{a.kernel_id}", {"gpu": 0.5})
    assert a.ok(CHECK).splitlines()[-1] == "True", "saved memory is restored"
    a.shut_down()
