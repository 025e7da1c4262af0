"""One user who sends too much: pods, unfinished lines, labels, output. The processes stay bounded,
and the calls of other users are answered meanwhile.
"""

from __future__ import annotations

import os
import resource
import secrets
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.security.machine import AgentSocket, Machine, as_root, connect, eventually

pytestmark = [as_root, pytest.mark.slow, pytest.mark.timeout(180)]

MIB = 1 << 20
PIECE = b"x" * (1 << 16)


class Others:
    """Calls of alice while bob attacks: all must be answered."""

    def __init__(self, machine: Machine) -> None:
        self.machine, self.answered, self.failed = machine, 0, []
        self.server = machine.server_of("alice")
        self.server.hello()
        self._stop = threading.Event()

    def run(self) -> None:
        while not self._stop.is_set():
            try:
                self._call()
            except (OSError, AssertionError) as error:
                self.failed.append(repr(error))
                return
            self.answered += 1
            self._stop.wait(0.05)

    def _call(self) -> None:
        answer = self.machine.call_http(self.token, "GET", "/api/v1/status")
        assert answer.status == 200, answer
        assert self.server.register("k-alice").get("error") is None

    @contextmanager
    def calling(self) -> Iterator[None]:
        self.token = self.machine.token("alice")
        thread = threading.Thread(target=self.run)
        thread.start()
        try:
            yield
        finally:
            before = self.answered
            eventually(lambda: self.failed or self.answered > before, "alice is answered")
            self._stop.set()
            thread.join()
        assert self.failed == []


@contextmanager
def calm(machine: Machine, *, agent_mib: int, scheduler_mib: int) -> Iterator[None]:
    """Others are answered meanwhile, the node stays, and memory grows by at most so much."""
    pids = machine.agent.pid, machine.scheduler.pid
    before = machine.rss(machine.agent), machine.rss(machine.scheduler)
    with Others(machine).calling():
        yield
    assert machine.node_is_ready()
    assert (machine.agent.pid, machine.scheduler.pid) == pids
    assert machine.rss(machine.agent) - before[0] < agent_mib * MIB
    assert machine.rss(machine.scheduler) - before[1] < scheduler_mib * MIB


def push(line: AgentSocket, most: int) -> int:
    """Send without a line end until the agent reads no more or closes. Returns the bytes sent."""
    line.sock.settimeout(0.5)
    sent = 0
    try:
        while sent < most:
            sent += line.sock.send(PIECE)
    except (TimeoutError, OSError):
        pass
    return sent


@pytest.mark.parametrize("first", [b"", b'{"type": "server_hello", "server": "flood", "pid": 1}\n'])
def test_unfinished_lines_on_many_sockets(machine: Machine, first: bytes):
    with calm(machine, agent_mib=150, scheduler_mib=50):
        lines = [machine.server_of("bob") for _ in range(100)]
        for line in lines:
            line.send_raw(first)
        threads = [threading.Thread(target=push, args=(line, 7 * MIB)) for line in lines]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for line in lines:
            line.close()
    again = machine.server_of("bob")
    assert isinstance(again.hello(), list), "he can connect again"
    again.close()


def test_messages_that_nobody_reads(machine: Machine):
    """Requests whose answers stay unread: the agent does not keep them for ever."""
    with calm(machine, agent_mib=150, scheduler_mib=50):
        lines = [machine.server_of("bob") for _ in range(20)]
        for line in lines:
            line.sock.settimeout(1)
            line.send(type="server_hello", server=secrets.token_hex(4), pid=1)
            act = b'{"type": "kernel_act", "n": 1, "kernel_id": "%s", "action": "pin"}\n'
            try:
                for _ in range(20):
                    line.send_raw(act % (b"k" * 50_000))
            except (TimeoutError, OSError):
                pass
        for line in lines:
            line.close()


@pytest.mark.parametrize("field", ["name", "language", "user"])
def test_large_texts_about_kernels(machine: Machine, field: str):
    """The agent keeps what servers say about kernels, also in its journal."""
    journal = machine.folder / "agent-state/agent.journal.json"
    with calm(machine, agent_mib=100, scheduler_mib=50):
        line = machine.server_of("bob")
        line.hello()
        assert line.register("k-bob").get("error") is None
        for number in range(12):
            refused = line.register(f"k-bob-{number}", **{field: "x" * (6 * MIB)})
            assert refused["error"]["code"] == "invalid-input"
            line.send(type="kernel_outlook", kernel_id="k-bob", pending=True, name="x" * (6 * MIB))
        assert line.register("k-bob").get("error") is None
        line.close()
    assert journal.stat().st_size < MIB


def test_many_pods(machine: Machine):
    """10 000 pods at once, and 1000 pods again and again, with and without GPUs, and asked about:
    accepted up to the budget, and then refused with the numbers.
    """
    token, ids, codes = machine.token("bob"), [], set()
    with calm(machine, agent_mib=50, scheduler_mib=400):
        body = {"id": "most", "pods": [{"gpu": 2}] * 10_000, "queue_anyway": True}
        refused = machine.call_http(token, "POST", "/api/v1/workloads", body)
        assert refused.error()["code"] == "too-many-pods", refused
        for number in range(44):
            id_, pod = f"many-{number}", {"gpu": 2 * (number % 2)}
            pods = [pod] * (1000 if number % 2 else 100)
            body = {"id": id_, "pods": pods, "queue_anyway": True}
            machine.call_http(token, "POST", "/api/v1/what-if", body)
            answer = machine.call_http(token, "POST", "/api/v1/workloads", body)
            codes.add(answer.status)
            if answer.status == 200:
                ids.append(id_)
            else:
                assert answer.error()["code"] in ("too-many-pending", "too-many-requests"), answer
        assert codes <= {200, 409, 429}
        assert codes - {200}, "there is a budget"
        assert machine.submit("alice", id="small").status == 200
        eventually(lambda: machine.state("small") == "running", "alice gets her share")
        for id_ in (*ids, "small"):
            machine.end(id_)


def test_large_labels_and_names(machine: Machine):
    state = machine.folder / "scheduler-state"

    def stored() -> int:
        return sum(path.stat().st_size for path in state.rglob("*") if path.is_file())

    before = stored()
    with calm(machine, agent_mib=50, scheduler_mib=100):
        for number in range(10):
            for large in (
                {"pods": [{"gpu": 2, "labels": {"a": "x" * 900_000}}]},
                {"pods": [{"gpu": 2, "labels": {f"k{i}": "v" * 60 for i in range(5_000)}}]},
                {"pods": [{"gpu": 2, "name": "x" * 900_000}]},
                {"pods": [{"gpu": 2, "nodes": ["n" * 900_000]}]},
                {"pods": [{"gpu": 2}], "name": "x" * 900_000},
            ):
                answer = machine.submit("bob", id=f"large-{number}", queue_anyway=True, **large)
                assert answer.status in (0, 400, 409, 413, 429), (number, answer)
    assert stored() - before < 20 * MIB


def test_endless_output(machine: Machine):
    """The log of a command is cut off, and the agent and others go on."""
    folder = machine.folder / "agent-state" / "batch"
    with calm(machine, agent_mib=100, scheduler_mib=200):
        ids = [machine.begin("bob", ["sh", "-c", "exec yes"]) for _ in range(2)]
        largest = 0

        def is_bounded() -> bool:
            nonlocal largest
            sizes = [path.stat().st_blocks * 512 for path in folder.rglob("log")]
            largest = max(largest, *sizes, 0)
            return all("cut off" in _tail(path) for path in folder.rglob("log"))

        eventually(is_bounded, "the logs are cut off")
        for id_ in ids:
            machine.end(id_)
        eventually(lambda: not list(folder.rglob("log")), "the logs are gone")
    assert machine.run("bob", ["echo", "again"]).output == "again\n"


def _tail(path) -> str:
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - 1000))
        return file.read().decode(errors="replace")


def test_bad_lines_do_not_fill_the_log(machine: Machine):
    """Of a server, before the hello, and about kernels: a few lines are logged, and then how many
    were not.
    """
    log = machine.log("agent")
    before = log.stat().st_size
    with calm(machine, agent_mib=50, scheduler_mib=50):
        line = machine.server_of("bob")
        line.hello()
        for _ in range(300):
            line.send_raw(b"".join(b'{"type": "%d"}\n' % number for number in range(100)))
            line.send(type="register_kernel", n=1, kernel_id="../" + "x" * 3000)
        line.until("registered")
        for number in range(300):
            other = machine.server_of("bob")
            if number % 2:
                other.send(type="kernel_hello", kernel_id="k" * 16_000, pid=1, token="x")
            else:
                other.send_raw(b"{" * 10_000 + b"\n")
            assert other.read()["type"] == "refused"
            other.close()
        line.close()
    assert log.stat().st_size - before < 100_000


def test_actions_are_bounded(machine: Machine):
    """Each is an event, which the scheduler stores and logs."""
    line = machine.server_of("bob")
    line.hello()
    assert line.register("k-actions").get("error") is None
    answer = machine.submit(
        "bob", kernel_id="k-actions", pods=[{"name": "kernel", "gpu": 0.1, "nodes": ["n0"]}]
    )
    id_ = answer.json()["id"]
    line.send(type="kernel_outlook", kernel_id="k-actions", pending=False, workload=id_)
    eventually(lambda: machine.state(id_) == "running", "it has a share")
    logs = [machine.log(name) for name in ("agent", "scheduler")]
    before = [log.stat().st_size for log in logs]
    refused = 0
    for number in range(1000):
        action = ("pin", "unpin")[number % 2]
        line.send(type="kernel_act", n=number, kernel_id="k-actions", action=action)
        refused += "too many actions" in str(line.until("act_done", n=number).get("error"))
    assert refused > 800
    for log, size in zip(logs, before, strict=True):
        assert log.stat().st_size - size < 100_000
    machine.end(id_)
    line.close()


def test_connections_of_one_user_are_limited(machine: Machine):
    """Others can connect as long as there are file descriptors."""
    files = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (files[1], files[1]))
    most = min(4096, files[1] // 4)
    opened: list[socket.socket] = []
    try:
        with calm(machine, agent_mib=50, scheduler_mib=300):
            for process, path in (
                (machine.scheduler, machine.socket),
                (machine.agent, machine.agent_path),
            ):
                for _ in range(min(most + 200, files[1] // 2)):
                    opened.append(connect(path, machine.users["bob"]))
                used = len(os.listdir(f"/proc/{process.pid}/fd"))
                assert used < most + 150, "none is left for others"
                while opened:
                    opened.pop().close()
    finally:
        for one in opened:
            one.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, files)
    assert machine.call("bob", "GET", "/api/v1/status").status == 200


def test_connections_without_a_first_line(machine: Machine):
    """More than the limit of one user, and as many to the scheduler."""
    with calm(machine, agent_mib=100, scheduler_mib=100):
        lines = [machine.server_of("bob") for _ in range(600)]
        calls = []
        for _ in range(200):
            made = socket.create_connection(("127.0.0.1", machine.port))
            made.sendall(b"GET /api/v1/status HTTP/1.1\r\nHost: x\r\nX-Slow: ")
            calls.append(made)
        for one in (*lines, *calls):
            one.close()
