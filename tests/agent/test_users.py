"""One agent, run by root, for every unix user of a machine: two real other users, each with kernels
and Jupyter servers of their own.

They share the GPUs and nothing else: neither knows of the other's kernels, can act on them, be
taken for one, or read what opens them.
"""

from __future__ import annotations

import asyncio
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from jupyter_gpushare.cli import gpushare
from jupyter_gpushare.core.model.errors import InvalidInput
from jupyter_gpushare.messages import (
    KernelActionDone,
    KernelActionRequest,
    KernelGone,
    KernelLaunched,
    KernelRequestState,
    LeaseBody,
    RelayedRequest,
    RelayedResponse,
    Share,
)
from node_agent.socket import socket_server
from node_agent.system.process_owner import UnixUser
from node_agent.system.run_directory import prepare_public_directory
from tests.agent.shared_machine import Box, People, as_root, people
from tests.agent.simulated_node import GIB, FakeServer, acting_as, knocking, play

__all__ = ["people"]

HALF = 40 * GIB


async def answered(server: FakeServer, kernel_id: str, action: str = "suspend") -> KernelActionDone:
    server.send(KernelActionRequest(n=99, kernel_id=kernel_id, action=action))
    while True:
        if isinstance(said := await asyncio.wait_for(server.answers.get(), 60), KernelActionDone):
            return said


@as_root
def test_alice_lends_to_nobody_what_bob_is_owed(people: People):
    """Alice bursts, bob's share arrives, alice is suspended, and both have what they wrote."""

    async def story():
        async with Box(people) as box:
            a, b = await box.hers.launch("a"), await box.his.launch("b")
            box.scheduler.grant("a", gpu=0, request=HALF)
            await box.attached("a")
            assert (
                await a.run(
                    "bufs.append(simgpu.alloc('70GiB')); bufs[0].fill(3); result = os.getuid()"
                )
            )["result"] == people.alice.pw_uid
            box.scheduler.grant("b", gpu=0, request=HALF)
            await box.attached("b")
            done = await b.run(
                "bufs.append(simgpu.alloc('40GiB')); bufs[0].fill(5)\n"
                "result = os.getuid(), bufs[0].sum() / bufs[0].nbytes"
            )
            assert done["result"] == [people.bob.pw_uid, 5]
            assert box.record("a").memory.suspended
            assert box.hers.reported["a"].state == "suspended"
            assert (await b.run("bufs[0].free(); bufs.clear()"))["result"] is None
            assert (await a.run("result = bufs[0].sum() / bufs[0].nbytes"))["result"] == 3

    play(story())


@as_root
def test_each_hears_of_their_own_and_acts_on_their_own(people: People):
    async def story():
        async with Box(people) as box:
            a, _b = await box.hers.launch("a"), await box.his.launch("b")
            for kernel in ("a", "b"):
                box.scheduler.grant(kernel, gpu=0, request=HALF)
                await box.attached(kernel)
            for server, own in ((box.hers, ["a"]), (box.his, ["b"]), (box.server, [])):
                welcome = await server.connect()
                assert [kernel.kernel_id for kernel in welcome.kernels] == own
                assert (welcome.node, "suspend" in welcome.tiers) == ("n0", True)
            assert (await answered(box.his, "a")).error.code == "not-found"
            assert (await answered(box.hers, "a")).error is None
            taken = await box.his.register("a")
            assert (taken.env, taken.error.code, taken.error.field) == (
                {},
                "not-allowed",
                "kernel_id",
            )
            assert "belongs to another user" in taken.error.message
            box.his.send(KernelRequestState(kernel_id="a", pending=False, refuses="by bob"))
            box.his.send(KernelGone(kernel_id="a", restarting=False))
            assert (await box.his.register("b2")).error is None, (
                "what was said before has been heard by now"
            )
            assert (await a.run("result = 1"))["result"] == 1
            assert box.record("a").registration.owner == UnixUser(people.alice.pw_uid)
            assert box.record("a").request_state.refuses == ""
            assert set(box.his.reported) == {"b", "b2"}

    play(story())


@as_root
def test_a_lease_without_a_kernel_is_nobodys_to_take(people: People):
    async def story():
        async with Box(people) as box:
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
            )
            box.scheduler.grant_again(body)
            await box.until(lambda: "w" in box.agent.node.kernels, "the lease is known")
            assert (await box.his.register("w")).error.code == "not-allowed"

    play(story())


SPEAK = """
import json, os, pwd, socket, sys
user, token = pwd.getpwnam(sys.argv[1]), open(sys.argv[3]).read()
os.setgroups([]), os.setgid(user.pw_gid), os.setuid(user.pw_uid)
s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[2])
hello = {"type": "kernel_hello", "kernel_id": "a", "token": token, "pid": os.getpid()}
s.sendall(json.dumps(hello).encode() + b"\\n")
line = s.makefile().readline()
print(json.loads(line)["type"] if line else "refused")
"""


@as_root
@pytest.mark.parametrize(("who", "answer"), [("alice", "kernel_welcome"), ("bob", "refused")])
def test_nobody_elses_process_is_her_kernel(people: People, who: str, answer: str):
    """Not with her kernel's id, nor her token, nor the mark of her launch."""

    async def story():
        async with Box(people) as box:
            env = (await box.hers.register("a")).env
            argv = [
                sys.executable,
                "-c",
                SPEAK,
                getattr(people, who).pw_name,
                env["GPUSHARE_AGENT"],
                env["GPUSHARE_TOKEN_FILE"],
            ]
            process = await asyncio.create_subprocess_exec(
                *argv, stdout=subprocess.PIPE, env=os.environ | env
            )
            out, _ = await process.communicate()
            assert out.decode().strip() == answer

    play(story())


@as_root
def test_what_opens_her_kernel_is_closed_to_him(people: People):
    async def story():
        async with Box(people) as box:
            env = (await box.hers.register("a")).env
            box.agent.journal.write(box.agent.node)
            look_around(box, Path(env["GPUSHARE_TOKEN_FILE"]))

    def look_around(box: Box, token: Path) -> None:
        assert (stat.S_IMODE(token.stat().st_mode), token.stat().st_uid) == (
            0o600,
            people.alice.pw_uid,
        )
        public = box.config.public_dir()
        with acting_as(people.alice):
            assert token.read_text()
        for closed in (
            token.read_text,
            token.unlink,
            (token.parent / "b").touch,
            lambda: list(token.parent.iterdir()),
            lambda: list(public.iterdir()),
            (public / "agent.sock").unlink,
            lambda: list(box.state_dir.iterdir()),
            (box.state_dir / "agent.journal.json").read_text,
        ):
            with acting_as(people.bob), pytest.raises(PermissionError):
                closed()

    play(story())


@as_root
def test_he_cannot_have_her_process_watched_or_ended_as_his(people: People):
    async def story():
        async with Box(people) as box:
            a = await box.hers.launch("a")
            await box.his.register("b")
            for pid in (a.pid, os.getpid(), 1):
                box.his.send(KernelLaunched(kernel_id="b", pid=pid))
            assert (await box.his.register("b", pid=a.pid)).env == {}
            assert (await box.his.register("c", pid=a.pid)).env == {}
            assert [box.record(kernel_id).process.main for kernel_id in ("b", "c")] == [None, None]
            for kernel_id in ("b", "c"):
                box.his.send(KernelGone(kernel_id=kernel_id, restarting=False))
            await box.until(
                lambda: not {"b", "c"} & set(box.agent.node.kernels), "his kernels are over"
            )
            assert (await a.ask("status"))["body"]["kernel_id"] == "a"

    play(story())


@as_root
def test_nobody_answers_what_another_was_asked(people: People):
    async def story():
        async with Box(people) as box:
            a = await box.hers.launch("a")
            mark = len(a.said)
            a.process.stdin.write(b'{"ask": "request"}\n')
            while not isinstance(
                asked := await asyncio.wait_for(box.hers.answers.get(), 60), RelayedRequest
            ):
                pass
            box.his.send(RelayedResponse(n=asked.n, body={"by": "bob"}))
            assert (await box.his.register("b")).error is None, (
                "what was said before has been heard by now"
            )
            box.hers.send(RelayedResponse(n=asked.n, body={"by": "alice"}))
            assert (await a.hear("reply", mark))["reply"]["body"] == {"by": "alice"}

    play(story())


@as_root
@pytest.mark.parametrize("journal", ["kept", "lost"])
def test_an_agent_that_comes_back_knows_whose_each_kernel_is(people: People, journal: str):
    async def story():
        async with Box(people) as box:
            a, b = await box.hers.launch("a"), await box.his.launch("b")
            for kernel in ("a", "b"):
                box.scheduler.grant(kernel, gpu=0, request=30 * GIB)
                await box.attached(kernel)
            await a.run("bufs.append(simgpu.alloc('30GiB')); bufs[0].fill(3)")
            async with box.restarted():
                if journal == "lost":
                    (box.state_dir / "agent.journal.json").unlink()
            assert (await box.his.register("a", pid=b.pid)).error.code == "not-allowed"
            for server, kernel, child in ((box.hers, "a", a), (box.his, "b", b)):
                assert (await server.register(kernel, pid=child.pid)).error is None
                await box.attached(kernel)
            assert (await a.run("result = bufs[0].sum() / bufs[0].nbytes"))["result"] == 3
            assert (await b.run("bufs.append(simgpu.alloc('30GiB')); result = 1"))["result"] == 1
            assert [box.record(kernel).registration.owner for kernel in ("a", "b")] == [
                UnixUser(people.alice.pw_uid),
                UnixUser(people.bob.pw_uid),
            ]

    play(story())


@as_root
def test_a_flood_of_his_and_too_many_connections_are_his_trouble_alone(
    people: People, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(socket_server, "MAX_CONNECTIONS", 4)

    async def story():
        async with Box(people) as box:
            a = await box.hers.launch("a")
            box.scheduler.grant("a", gpu=0, request=HALF)
            await box.attached("a")
            lines = [
                await asyncio.open_unix_connection(
                    sock=knocking(box.config.socket_path(), people.bob)
                )
                for _ in range(8)
            ]
            for number, (_, writer) in enumerate(lines):
                writer.write(b'{"type": "server_hello", "server": "flood%d", "pid": 1}\n' % number)
                writer.write(
                    b'{"type": "kernel_act", "n": 1, "kernel_id": "a", "action": "suspend"}\n'
                    * 20_000
                )
            assert (await a.run("result = 1", timeout=60))["result"] == 1
            closed = 0
            for reader, writer in lines:
                try:
                    closed += b'"refused"' in await asyncio.wait_for(reader.readline(), 60)
                except ConnectionError:
                    closed += 1
                writer.transport.abort()
            assert closed == 5, "his own server's line is the first of his four"
            assert (await a.run("result = 2", timeout=60))["result"] == 2

    play(story())


def test_a_folder_that_others_could_change_or_not_reach_is_refused(tmp_path: Path):
    tmp_path.chmod(0o700)
    (tmp_path / "public").mkdir()
    (tmp_path / "public/agent.sock").touch()
    with pytest.raises(InvalidInput, match="cannot traverse"):
        prepare_public_directory(tmp_path / "public")
    (tmp_path / "public").chmod(0o777)
    with pytest.raises(InvalidInput, match="only root may own and write"):
        prepare_public_directory(tmp_path / "public")


def test_only_root_can_serve_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    said = CliRunner().invoke(
        gpushare,
        [
            "agent",
            "--users",
            "all",
            "--simulate",
            "1",
            "--state-dir",
            str(tmp_path),
            "--scheduler",
            "http://x",
        ],
    )
    assert isinstance(said.exception, InvalidInput)
    assert (said.exception.field, "only root" in said.exception.message) == ("--users", True)
