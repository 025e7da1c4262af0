"""One agent for the pods of a node: two pods whose notebooks have the same user id, one of them
with root inside. They share the GPUs and nothing else.
"""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from jupyter_gpushare.messages import (
    CommandRequest,
    KernelGone,
    KernelLaunched,
    KernelRequestState,
    LeaseBody,
    LeaseReleased,
    Share,
)
from node_agent.devices.base.model import KernelProcesses
from node_agent.devices.base.process_attribution import ProcessAttribution
from node_agent.policy.memory_accounting import FOREIGN
from node_agent.socket import socket_server
from node_agent.system import peers
from node_agent.system.processes import find_launched, process_at
from tests.agent.pods import FakePod, PodNode, as_node_root, public_folder, usable_versions
from tests.agent.simulated_node import GIB, play
from tests.agent.test_users import answered

pytestmark = as_node_root
HALF = 40 * GIB


def test_two_pods_share_a_gpu():
    """In pid namespaces of their own, where the first process of each has the pid 1."""

    async def story():
        async with PodNode() as node:
            a, b = await node.hers.launch("a"), await node.his.launch("b")
            node.scheduler.grant("a", gpu=0, request=HALF)
            await node.attached("a")
            code = "bufs.append(simgpu.alloc('70GiB')); bufs[0].fill(3); result = os.getuid()"
            assert (await a.run(code))["result"] == 1000
            node.scheduler.grant("b", gpu=0, request=HALF)
            await node.attached("b")
            code = "bufs.append(simgpu.alloc('40GiB')); bufs[0].fill(5); result = os.getuid()"
            assert (await b.run(code))["result"] == 0
            assert node.record("a").memory.suspended
            assert node.hers.reported["a"].state == "suspended"
            assert (await b.run("bufs.pop().free()"))["result"] is None
            assert (await a.run("result = bufs[0].sum() / bufs[0].nbytes"))["result"] == 3
            await a.end()
            await node.until(lambda: node.used() == {0: 0}, "memory of an ended process is free")

    play(story())


@pytest.mark.parametrize("version", usable_versions())
def test_the_pod_is_found_in_each_version_of_cgroups(version: int):
    async def story():
        async with PodNode() as node:
            server = await node.add_server(version=version)
            await server.register("c")
            assert node.record("c").registration.owner == server.pod.owner
            await server.close()

    play(story())


def test_each_pod_hears_of_its_own_kernels_and_acts_on_them():
    async def story():
        async with PodNode() as node:
            a, _b = await node.hers.launch("a"), await node.his.launch("b")
            for kernel in ("a", "b"):
                node.scheduler.grant(kernel, gpu=0, request=HALF)
                await node.attached(kernel)
            for server, own in ((node.hers, ["a"]), (node.his, ["b"])):
                welcome = await server.connect()
                assert [kernel.kernel_id for kernel in welcome.kernels] == own
            assert (await answered(node.his, "a")).error.code == "not-found"
            assert (await answered(node.his, "nothing")).error.code == "not-found"
            assert (await answered(node.hers, "a")).error is None
            taken = await node.his.register("a")
            assert (taken.env, taken.token, taken.error.code) == ({}, "", "not-allowed")
            assert "belongs to another pod" in taken.error.message
            node.his.send(KernelRequestState(kernel_id="a", pending=False, refuses="by bob"))
            node.his.send(KernelGone(kernel_id="a", restarting=False))
            assert (await node.his.register("b2")).error is None, "later than those messages"
            assert (await a.run("result = 1"))["result"] == 1
            assert node.record("a").request_state.refuses == ""
            assert node.record("a").registration.owner == node.hers.pod.owner
            assert set(node.his.reported) == {"b", "b2"}

    play(story())


def test_a_lease_whose_kernel_is_not_registered_is_of_no_pod():
    async def story():
        async with PodNode() as node:
            node.scheduler.grant("later", gpu=0, request=HALF)
            await node.until(lambda: "later" in node.agent.node.kernels, "the lease is known")
            assert (await answered(node.his, "later")).error.code == "not-found"
            welcome = await node.his.connect()
            assert welcome.kernels == []

    play(story())


HELLO = """
import json, os, socket
s = socket.socket(socket.AF_UNIX); s.connect({socket!r})
hello = {{"type": "kernel_hello", "kernel_id": "a", "token": {token!r}, "pid": os.getpid()}}
hello |= {more!r}
s.sendall(json.dumps(hello).encode() + b"\\n")
line = s.makefile().readline()
s.close()
result = json.loads(line)["type"] if line else "refused"
"""


@pytest.mark.parametrize("more", [{}, {"proxy": True}], ids=["kernel", "proxy"])
def test_no_process_of_another_pod_is_her_kernel(more: dict[str, object]):
    """Not with the kernel's id and token and the marker of its launch, as whatever user."""

    async def story():
        async with PodNode() as node:
            registered = await node.hers.register("a")
            code = HELLO.format(
                socket=str(node.config.socket_path()), token=registered.token, more=more
            )
            marked = registered.env | {"GPUSHARE_PROXY_OF": "a"}
            for server, answer in ((node.his, "refused"), (node.hers, "kernel_welcome")):
                command = [*server.pod.command(), *PYTHON, server.pod.user, code]
                process = await asyncio.create_subprocess_exec(
                    *command, stdout=-1, env=os.environ | ROOT_PATH | marked, cwd="/"
                )
                out, _ = await process.communicate()
                assert out.decode().strip() == answer

    play(story())


@pytest.fixture
def public_dir() -> Iterator[Path]:
    with public_folder() as folder:
        yield folder


ROOT_PATH = {"PYTHONPATH": str(Path(__file__).parents[2])}
AS_USER = """
import sys, json, socket, encodings.idna
from tests.agent.kernel_process import become
become(sys.argv[1]); exec(sys.argv[2]); print(result)
"""
PYTHON = (sys.executable, "-c", AS_USER)


def test_root_of_a_pod_finds_nothing_in_the_folder_of_the_socket():
    """And cannot change it: it is mounted read-only."""

    async def story():
        async with PodNode() as node:
            await node.hers.register("a")
            folder = str(node.config.socket_path().parent)
            run = node.his.pod.run
            assert run(f"import os; result = os.listdir({folder!r})") == {"result": ["agent.sock"]}
            for code in (f"os.unlink({folder!r} + '/agent.sock')", f"open({folder!r} + '/x', 'w')"):
                assert run(f"import os; {code}")["error"] == "OSError", code
            her_file = f"open('{node.hers.pod.home}/a')"
            assert run(her_file)["error"] == "FileNotFoundError"
            assert os.listdir(folder) == ["agent.sock"]

    play(story())


def test_another_pod_cannot_have_her_process_watched_or_ended_as_its_own():
    async def story():
        async with PodNode() as node:
            a = await node.hers.launch("a")
            main = node.record("a").process.main
            launch = node.record("a").process.launch
            await node.his.register("b")
            for pid in (main.pid, os.getpid(), 1):
                node.his.send(KernelLaunched(kernel_id="b", pid=pid))
            for more in ({"pid": main.pid}, {"pid": main.pid, "launch": "c.0123456789ab"}):
                assert (await node.his.register("c", **more)).env == {}
            assert (await node.his.register("c", pid=1, launch=launch)).error.field == "launch"
            assert [node.record(one).process.main for one in ("b", "c")] == [None, None]
            for one in ("b", "c"):
                node.his.send(KernelGone(kernel_id=one, restarting=False))
            await node.until(lambda: not {"b", "c"} & set(node.agent.node.kernels), "both are over")
            assert main.is_alive()
            assert (await a.ask("status"))["body"]["kernel_id"] == "a"

    play(story())


def test_a_process_that_carries_her_marker_in_another_pod_is_not_hers():
    """It is neither attributed to her kernel nor ended with it."""

    async def story():
        async with PodNode() as node:
            await node.hers.launch("a")
            record = node.record("a")
            marked = os.environ | {"GPUSHARE_LAUNCH": record.process.launch}
            process = await asyncio.create_subprocess_exec(
                *node.his.pod.command(), "sleep", "60", env=marked
            )
            await node.until(lambda: psutil.Process(process.pid).children(), "it runs")
            sleeper = process_at(psutil.Process(process.pid).children()[0].pid)
            inner = int(_namespace_pid(sleeper.pid))
            owner = node.hers.pod.owner
            assert find_launched(inner, record.process.launch, node.his.pod.owner) == sleeper
            assert find_launched(inner, record.process.launch, owner) in (None, record.process.main)
            main, attribution = record.process.main, ProcessAttribution()
            hers = KernelProcesses((main.pid, main.start), record.process.launch, owner=owner)
            attribution.track({"a": hers})
            assert attribution.owner_of(main.pid) == (main.start, "a")
            assert attribution.owner_of(sleeper.pid) == (sleeper.start, FOREIGN)
            node.hers.send(KernelGone(kernel_id="a", restarting=False))
            await node.until(lambda: "a" not in node.agent.node.kernels, "her kernel is over")
            assert not main.is_alive()
            assert sleeper.is_alive()
            psutil.Process(sleeper.pid).kill()
            await process.wait()

    play(story())


def _namespace_pid(pid: int) -> str:
    status = Path(f"/proc/{pid}/status").read_text()
    return next(line for line in status.splitlines() if line.startswith("NSpid")).split()[-1]


CHANGES_USER = """
import subprocess, sys
child = subprocess.Popen(["setpriv", "--reuid", "1234", "--clear-groups", "--", "sleep", "60"],
    start_new_session=True)
result = child.pid
"""


def test_a_kernels_processes_are_those_that_it_started_whatever_their_user():
    async def story():
        async with PodNode() as node:
            b = await node.his.launch("b", wants_gpu=False)
            main = node.record("b").process.main
            assert "error" not in await b.run(CHANGES_USER)

            def sleeper() -> psutil.Process:
                (found,) = psutil.Process(main.pid).children()
                return found if found.uids().real == 1234 else None

            found = await node.until(sleeper, "it runs as another user")
            node.his.send(KernelGone(kernel_id="b", restarting=False))
            await node.until(lambda: "b" not in node.agent.node.kernels, "the kernel is over")
            assert not found.is_running() or found.status() == psutil.STATUS_ZOMBIE

    play(story())


@pytest.mark.parametrize("journal", ["kept", "lost"])
def test_a_restarted_agent_knows_the_pod_of_each_kernel(journal: str):
    async def story():
        async with PodNode() as node:
            a, b = await node.hers.launch("a"), await node.his.launch("b")
            for kernel in ("a", "b"):
                node.scheduler.grant(kernel, gpu=0, request=30 * GIB)
                await node.attached(kernel)
            await a.run("bufs.append(simgpu.alloc('30GiB')); bufs[0].fill(3)")
            known = {one: node.record(one) for one in ("a", "b")}
            async with node.restarted():
                if journal == "lost":
                    (node.state_dir / "agent.journal.json").unlink()
            if journal == "kept":
                assert (await node.his.register("a", pid=1)).error.code == "not-allowed"
            for server, kernel in ((node.hers, "a"), (node.his, "b")):
                old = known[kernel]
                answer = await server.register(
                    kernel,
                    pid=int(_namespace_pid(old.process.main.pid)),
                    token_hash=old.registration.token,
                    launch=old.process.launch,
                )
                assert answer.error is None
                await node.attached(kernel)
                assert node.record(kernel).process.main == old.process.main
            assert (await a.run("result = bufs[0].sum() / bufs[0].nbytes"))["result"] == 3
            assert (await b.run("bufs.append(simgpu.alloc('30GiB')); result = 1"))["result"] == 1

    play(story())


def test_limits_count_per_pod(monkeypatch: pytest.MonkeyPatch):
    """A flood of one pod, and its many connections, do not slow down another one."""
    monkeypatch.setattr(socket_server, "MAX_CONNECTIONS", 4)

    async def story():
        async with PodNode() as node:
            a = await node.hers.launch("a", wants_gpu=False)
            lines = []
            for number in range(8):
                sock = node.his.pod.connect(node.config.socket_path())
                reader, writer = await asyncio.open_unix_connection(sock=sock)
                writer.write(b'{"type": "server_hello", "server": "f%d", "pid": 1}\n' % number)
                writer.write(b'{"type": "kernel_act", "n": 1, "kernel_id": "a"}\n' * 20_000)
                lines.append((reader, writer))
            assert (await a.run("result = 1", timeout=5))["result"] == 1
            closed = 0
            for reader, writer in lines:
                try:
                    closed += b'"refused"' in await asyncio.wait_for(reader.readline(), 5)
                except ConnectionError:
                    closed += 1
                writer.transport.abort()
            assert closed == 5, "the connection of its server is the first of its four"

    play(story())


def test_a_node_of_pods_runs_no_commands():
    async def story():
        async with PodNode() as node:
            body = LeaseBody(
                id="w",
                workload="w",
                pod="p",
                kernel_id=None,
                project="vision",
                node="n0",
                pool="default",
                planned_gpus=[0],
                request_mib=HALF,
                limit_mib=HALF,
                request=Share(gpu=0.5),
                user="root",
                command=CommandRequest(argv=["/bin/true"], cwd="/"),
            )
            node.scheduler.grant_again(body)

            def refusals() -> list[str]:
                heard = node.scheduler.heard
                return [one.message for one in heard if isinstance(one, LeaseReleased)]

            await node.until(refusals, "the lease is released")
            assert "it serves the notebooks of Kubernetes pods" in refusals()[0]

    play(story())


@pytest.mark.parametrize("option", [peers.SO_PEERPIDFD, 0x7FFF], ids=["pidfd", "older kernel"])
def test_a_process_that_has_ended_is_in_no_pod(
    public_dir: Path, monkeypatch: pytest.MonkeyPatch, option: int
):
    """Its pid may be used again, by a process of another pod."""
    monkeypatch.setattr(peers, "SO_PEERPIDFD", option)
    path = public_dir / "run/s"
    with socket.socket(socket.AF_UNIX) as listener, FakePod(public_dir) as pod:
        listener.bind(str(path))
        listener.listen()
        path.chmod(0o666)
        with pod.connect(path), listener.accept()[0] as accepted:
            found = peers.peer_pod(accepted)
            assert (found.owner, found.problem) == (pod.owner, "")
            pod.main.kill()
            psutil.wait_procs([pod.main], timeout=10)
            found = peers.peer_pod(accepted)
            assert found.owner != pod.owner
            assert found.problem
