"""Kernels of other users: their ids are known (any user sees them in the process list), and must
open nothing: neither at the scheduler nor at the agent's socket.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, get_args

import pytest

from jupyter_gpushare.messages import FromServer, KernelAction
from node_agent.socket.socket_server import NOT_THAT_KERNEL
from tests.security.machine import ROOT, AgentSocket, Machine, as_root, eventually

pytestmark = [as_root, pytest.mark.slow, pytest.mark.timeout(180)]


class Kernel:
    """A running kernel of a user with its Jupyter server's connection and half a GPU."""

    def __init__(self, machine: Machine, who: str) -> None:
        self.machine, self.who, self.id = machine, who, f"k-{secrets.token_hex(6)}"
        self.server = machine.server_of(who)
        self.server.hello()
        registered = self.server.register(self.id, name="secret.ipynb", language="python")
        assert registered.get("error") is None, registered
        self.env: dict[str, str] = registered["env"]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.agent.kernel_process", machine.name(who)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=ROOT,
            env=os.environ | self.env | {"PYTHONPATH": str(ROOT)},
        )
        self.server.send(type="kernel_launched", kernel_id=self.id, pid=self.process.pid)
        assert "hello" in self._read()
        self.workload = ""

    def request(self) -> Kernel:
        """Request a share, as the Jupyter server does."""
        pods = [{"name": "kernel", "gpu": 0.5, "nodes": ["n0"]}]
        answer = self.machine.submit(self.who, kernel_id=self.id, pods=pods)
        assert answer.status == 200, answer
        self.workload = answer.json()["id"]
        self.declare()
        eventually(lambda: self.seen()["state"] == "attached", "it is attached")
        return self

    def declare(self) -> None:
        self.server.send(
            type="kernel_outlook", kernel_id=self.id, pending=False, workload=self.workload
        )

    def seen(self) -> dict[str, Any]:
        """As a new connection of its user sees it."""
        line = self.machine.server_of(self.who)
        try:
            return next(kernel for kernel in line.hello() if kernel["kernel_id"] == self.id)
        finally:
            line.close()

    def run(self, code: str) -> dict[str, Any]:
        """Run a cell. Returns its end: `result` or `error`."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"cell": code}).encode() + b"\n")
        self.process.stdin.flush()
        while True:
            message = self._read()
            if "done" in message or "error" in message:
                return message

    def _read(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, "the kernel has ended"
        return json.loads(line)

    def close(self) -> None:
        self.process.kill()
        self.process.communicate()
        if self.workload:
            self.machine.call(None, "DELETE", f"/api/v1/workloads/{self.workload}")
        self.server.close()


@pytest.fixture
def kernel(machine: Machine) -> Iterator[Callable[[str], Kernel]]:
    with contextlib.ExitStack() as stack:

        def make(who: str) -> Kernel:
            made = Kernel(machine, who)
            stack.callback(made.close)
            return made

        yield make


# ---- requests to the scheduler -------------------------------------------------------------------


@pytest.mark.parametrize("who", ["bob", "ann"])
@pytest.mark.parametrize("kind", ["with a share", "without a share"])
def test_a_workload_for_a_foreign_kernel_is_refused(machine: Machine, kernel, who: str, kind: str):
    """From an outsider, and from a colleague of the same project."""
    hers = kernel("alice")
    if kind == "with a share":
        hers.request()
    pods = [{"name": "kernel", "gpu": 0.1, "nodes": ["n0"]}]

    def refused() -> bool:
        answer = machine.submit(who, kernel_id=hers.id, pods=pods)
        if answer.status == 200:  # the agent's report has not arrived yet
            machine.end(answer.json()["id"])
            return False
        assert (answer.status, answer.error()["field"]) == (403, "kernel_id")
        return True

    eventually(refused, "refused")
    body = {"id": "w", "kernel_id": hers.id, "pods": pods}
    assert machine.call(who, "POST", "/api/v1/what-if", body).status == 403
    assert hers.run("result = 1")["result"] == 1
    if hers.workload:
        assert hers.seen()["workload"] == hers.workload


def test_a_workload_that_came_before_the_kernel_takes_nothing(machine: Machine, kernel):
    """Bob names an id, and then alice registers it."""
    hers = kernel("alice")
    other = f"k-{secrets.token_hex(6)}"
    his = machine.submit("bob", kernel_id=other, pods=[{"gpu": 0.1, "nodes": ["n0"]}]).json()["id"]
    assert hers.server.register(other).get("error") is None
    eventually(lambda: machine.state(his) == "ended", "his workload is refused")
    runtimes = {kernel["kernel_id"]: kernel for kernel in machine.server_of("alice").hello()}
    assert runtimes[other]["workload"] is None


def test_the_owner_can_request_whatever_another_user_tried(machine: Machine, kernel):
    hers = kernel("alice").request()
    for who in ("bob", "ann"):
        machine.submit(who, kernel_id=hers.id)
        machine.submit(who, kernel_id=hers.id, replaces=hers.workload)
        machine.submit(who, id=hers.workload)
        machine.call(who, "DELETE", f"/api/v1/workloads/{hers.workload}")
        machine.call(who, "PATCH", f"/api/v1/workloads/{hers.workload}", {"name": "mine"})
    assert hers.run("b = simgpu.alloc('10GiB'); result = b.nbytes >> 30")["result"] == 10
    assert hers.seen()["state"] == "attached"
    assert machine.workload(hers.workload)["state"] == "running"
    assert machine.workload(hers.workload)["name"] != "mine"


# ---- messages of servers -------------------------------------------------------------------------


def acted(line: AgentSocket, kernel_id: str, action: str) -> str:
    number = secrets.randbelow(1 << 30)
    line.send(type="kernel_act", n=number, kernel_id=kernel_id, action=action)
    error = line.until("act_done", n=number).get("error")
    return error["code"] if error else ""


def registered(line: AgentSocket, kernel_id: str, **more: object) -> str:
    error = line.register(kernel_id, **more).get("error")
    return error["code"] if error else ""


def previewed(line: AgentSocket, kernel_id: str) -> dict[str, Any]:
    number = secrets.randbelow(1 << 30)
    line.send(type="start_preview", n=number, kernel_id=kernel_id, request={"gpu": 0.5})
    return line.until("start_previewed", n=number)


def refused_cells(line: AgentSocket, kernel_id: str) -> str:
    line.send(type="kernel_outlook", kernel_id=kernel_id, pending=True, refuses="no", workload="x")
    return ""


MESSAGES: dict[str, Callable[[AgentSocket, Kernel], str]] = {
    "server_hello": lambda line, _: str(line.send(type="server_hello", server="x", pid=1) or ""),
    "register_kernel": lambda line, kernel: registered(line, kernel.id),
    "register_kernel with its process": lambda line, kernel: registered(
        line, kernel.id, pid=kernel.process.pid
    ),
    "register_kernel with its user": lambda line, kernel: registered(
        line, kernel.id, user=kernel.machine.name(kernel.who)
    ),
    "register_kernel with a token and a launch": lambda line, kernel: registered(
        line, kernel.id, pid=kernel.process.pid, token_hash="ab" * 32, launch=f"{kernel.id}.ab"
    ),
    "start_preview": lambda line, kernel: str(previewed(line, kernel.id).get("error") or ""),
    "kernel_launched": lambda line, kernel: str(
        line.send(type="kernel_launched", kernel_id=kernel.id, pid=os.getpid()) or ""
    ),
    "kernel_ending": lambda line, kernel: str(
        line.send(type="kernel_ending", kernel_id=kernel.id) or ""
    ),
    "kernel_gone": lambda line, kernel: str(
        line.send(type="kernel_gone", kernel_id=kernel.id, restarting=False) or ""
    ),
    "kernel_outlook": lambda line, kernel: refused_cells(line, kernel.id),
    "answer": lambda line, _: "".join(
        str(line.send(type="answer", n=n, body={"lie": True}) or "") for n in range(100)
    ),
    **{
        f"kernel_act {action}": (lambda line, kernel, action=action: acted(line, kernel.id, action))
        for action in get_args(KernelAction)
    },
}
"""Each returns the code of the error, if the message has an answer."""
CODES = {"register_kernel": "not-allowed", "kernel_act": "not-found"}


def test_the_table_has_every_message_of_servers():
    tags = {kind.__struct_config__.tag for kind in get_args(FromServer)}
    assert {name.split()[0] for name in MESSAGES} == tags


STABLE = ("kernel_id", "state", "workload", "pinned", "saved_mib", "generation")


def stable(kernel: Kernel) -> dict[str, Any]:
    seen = kernel.seen()
    return {key: seen[key] for key in STABLE} | {"events": len(seen["events"])}


@pytest.mark.parametrize("who", ["bob", "ann"])
def test_no_message_about_a_foreign_kernel_has_an_effect(machine: Machine, kernel, who: str):
    hers = kernel("alice").request()
    assert hers.run("b = simgpu.alloc('10GiB'); b.fill(3)").get("error") is None
    before = stable(hers)
    for name, message in MESSAGES.items():
        line = machine.server_of(who)
        assert hers.id not in {kernel["kernel_id"] for kernel in line.hello()}
        code = message(line, hers)
        assert code == CODES.get(name.split()[0], ""), name
        assert line.register(f"k-{secrets.token_hex(6)}").get("error") is None, (
            "what was sent before has been handled by now"
        )
        line.close()
        assert stable(hers) == before, name
    assert hers.run("result = b.sum() / b.nbytes")["result"] == 3


EFFECTS: dict[str, Callable[[dict[str, Any]], bool]] = {
    "kernel_act pin": lambda seen: seen["pinned"],
    "kernel_act unpin": lambda seen: not seen["pinned"],
    "kernel_act suspend": lambda seen: seen["state"] == "suspended",
    "kernel_act resume": lambda seen: seen["state"] == "attached",
}


def test_the_same_messages_have_an_effect_on_an_own_kernel(machine: Machine, kernel):
    """Otherwise the test above would prove nothing."""
    hers = kernel("alice").request()
    assert hers.run("b = simgpu.alloc('10GiB')").get("error") is None
    for name, has_effect in EFFECTS.items():
        line = machine.server_of("alice")
        line.hello()
        assert MESSAGES[name](line, hers) == ""
        eventually(lambda: has_effect(hers.seen()), name)  # noqa: B023 - called at once
        line.close()
    assert registered(hers.server, hers.id, pid=hers.process.pid) == ""


def test_a_connection_hears_of_own_kernels_only(machine: Machine, kernel):
    his_line = machine.server_of("bob")
    his_line.hello()
    hers = kernel("alice").request()
    his = kernel("bob")
    his_line.register(his.id, pid=his.process.pid)
    number = secrets.randbelow(1 << 30)
    his_line.send(type="kernel_act", n=number, kernel_id=hers.id, action="suspend")
    while (message := his_line.read()) is not None:
        assert hers.id not in json.dumps(message).replace(f"no kernel {hers.id}", "")
        if message["type"] == "act_done":
            break
    his_line.close()


# ---- connections of kernels ----------------------------------------------------------------------


def test_no_process_of_another_user_is_her_kernel(machine: Machine, kernel):
    """Not even with the token of the kernel."""
    hers = kernel("alice").request()
    token = Path(hers.env["GPUSHARE_TOKEN_FILE"]).read_text()
    for who in ("bob", "ann"):
        for pid in (os.getpid(), hers.process.pid):
            line = machine.server_of(who)
            line.send(type="kernel_hello", kernel_id=hers.id, token=token, pid=pid)
            with contextlib.suppress(BrokenPipeError):  # closed before this message
                line.send(type="cell_start", n=1)
            assert line.read() == {"type": "refused", "message": NOT_THAT_KERNEL}
            line.close()
    assert hers.run("result = 1")["result"] == 1


def test_tokens_of_kernels_are_closed_to_other_users(machine: Machine, kernel):
    hers = kernel("alice")
    path = hers.env["GPUSHARE_TOKEN_FILE"]
    look = f"cat {path}; ls {Path(path).parent}; rm -f {path}; touch {Path(path).parent}/mine"
    end = machine.run("bob", ["sh", "-c", look])
    assert Path(path).read_text() not in end.output
    assert end.output.count("Permission denied") == 4
    assert Path(path).exists()


def test_a_kernel_of_hers_started_by_him_is_his(machine: Machine, kernel):
    """He registers a kernel of his own in her name: it gets his rights only."""
    hers = kernel("alice").request()
    line = machine.server_of("bob")
    line.hello()
    id_ = f"k-{secrets.token_hex(6)}"
    assert registered(line, id_, user=machine.name("alice")) == ""
    pods = [{"name": "kernel", "gpu": 0.1, "nodes": ["n0"]}]
    answer = machine.submit("bob", user=machine.name("alice"), kernel_id=id_, pods=pods)
    assert answer.status == 403
    assert id_ not in {kernel["kernel_id"] for kernel in machine.server_of("alice").hello()}
    line.send(type="kernel_launched", kernel_id=id_, pid=hers.process.pid)
    line.send(type="kernel_gone", kernel_id=id_, restarting=False)
    line.register(f"k-{secrets.token_hex(6)}")
    assert hers.run("result = 1")["result"] == 1
    line.close()
