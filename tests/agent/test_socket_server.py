"""The socket: who may speak, what a hostile or slow peer can do (nothing to the others), and what a
waiting cell shows.
"""

from __future__ import annotations

import asyncio
import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from jupyter_gpushare.core.model.errors import GpuShareError
from jupyter_gpushare.messages import (
    ErrorDetail,
    KernelActionRequest,
    KernelLaunched,
    PeerRefused,
    ReasonBody,
    RelayedRequest,
    RelayedResponse,
    Share,
    ToKernel,
    ToServer,
    decode,
)
from node_agent.app import Agent
from node_agent.socket.socket_server import NOT_THAT_KERNEL
from tests.agent.simulated_node import GIB, World, play

HALF = 40 * GIB


def test_the_socket_and_the_tokens_are_the_users_alone():
    async def story():
        async with World() as world:
            await world.server.register("a")
            for path in (world.config.socket_path(), world.state_dir / "tokens" / "a"):
                assert stat.S_IMODE(path.stat().st_mode) == 0o600

    play(story())


def token_of(registered) -> str:
    return Path(registered.env["GPUSHARE_TOKEN_FILE"]).read_text()


async def knock(world: World, line: bytes) -> bytes:
    reader, writer = await asyncio.open_unix_connection(world.config.socket_path())
    writer.write(line)
    try:
        return await asyncio.wait_for(reader.readline(), 60)
    finally:
        writer.close()


def hello(kernel_id: str, token: str) -> bytes:
    return (
        json.dumps(
            {"type": "kernel_hello", "kernel_id": kernel_id, "token": token, "pid": os.getpid()}
        ).encode()
        + b"\n"
    )


def test_unknown_peers_are_refused():
    """An unknown kernel, a wrong token, and the right token in a process that is not the kernel's
    get the same answer. Without a hello, the answer says what is expected.
    """

    async def story():
        async with World() as world:
            registered = await world.server.register("a")
            token = token_of(registered)
            told = [
                decode(ToKernel, await knock(world, line))
                for line in (hello("nobody", token), hello("a", "wrong"), hello("a", token))
            ]
            assert told == [PeerRefused(message=NOT_THAT_KERNEL)] * 3
            for line in (b"GET / HTTP/1.1\r\n", b'{"type": "cell_start", "n": 1}\n'):
                refused = decode(ToServer, await knock(world, line))
                assert "the first line must be a hello" in refused.message
            assert not world.record("a").gate.connected

    play(story())


SPEAK = """
import json, os, socket
s = socket.socket(socket.AF_UNIX); s.connect(os.environ["GPUSHARE_AGENT"])
token = open(os.environ["GPUSHARE_TOKEN_FILE"]).read() + {more!r}
hello = {{"type": "kernel_hello", "kernel_id": "a", "token": token, "pid": os.getpid()}}
s.sendall(json.dumps(hello).encode() + b"\\n")
line = s.makefile().readline()
print(json.loads(line)["type"] if line else "refused")
"""


@pytest.mark.parametrize(("more", "answer"), [("", "kernel_welcome"), ("x", "refused")])
def test_the_launched_process_and_its_children_are_welcome_with_their_token(more, answer):
    async def story():
        async with World() as world:
            registered = await world.server.register("a")
            env = os.environ | registered.env | {"CODE": SPEAK.format(more=more)}
            shell = ["sh", "-c", f'{sys.executable} -c "$CODE"; true']
            process = await asyncio.create_subprocess_exec(*shell, stdout=subprocess.PIPE, env=env)
            world.server.send(KernelLaunched(kernel_id="a", pid=process.pid))
            out, _ = await process.communicate()
            assert out.decode().strip() == answer

    play(story())


def test_a_kernel_id_that_is_a_path_is_refused():
    async def story():
        async with World() as world:
            for bad in ("../etc/x", "", "a/b", ".hidden", "x" * 200):
                assert (await world.server.register(bad)).env == {}
            assert world.agent.node.kernels == {}

    play(story())


def test_floods_long_lines_and_deaf_peers_do_not_hold_up_others():
    async def story():
        async with World() as world:
            a = await world.server.launch("a")
            world.scheduler.grant("a", gpu=0, request=HALF)
            await world.attached("a")
            floods = []
            for number in range(3):
                _, writer = await asyncio.open_unix_connection(world.config.socket_path())
                writer.write(b'{"type": "server_hello", "server": "flood%d", "pid": 1}\n' % number)
                writer.write(
                    b'{"type": "kernel_act", "n": 1, "kernel_id": "nobody", "action": "pin"}\n'
                    * 20_000
                )
                floods.append(writer)
            _, silent = await asyncio.open_unix_connection(world.config.socket_path())
            silent.write(b"x" * 1000)  # a line that never ends
            done = await a.run("result = 1", timeout=60)
            assert done["result"] == 1
            for writer in (*floods, silent):
                writer.transport.abort()

    play(story())


def test_a_line_that_is_too_long_ends_the_conversation_of_a_kernel():
    async def story():
        async with World() as world:
            a = await world.server.launch("a")
            world.scheduler.grant("a", gpu=0, request=HALF)
            await a.run("import __main__; __main__.link.send({'type': 'ping', 'x': 'y' * 300_000})")
            await world.until(lambda: world.record("a").gate.connected, "the kernel reconnects")
            assert (await a.run("result = 2"))["result"] == 2

    play(story())


def test_a_pending_kernel_waits_and_shows_the_reason_and_its_position():
    async def story():
        async with World() as world:
            a = await world.server.launch("a")
            reason = ReasonBody(
                code="WaitingForQuota", message="Project vision uses its whole quota."
            )
            world.server.report_request(
                "a", True, request=Share(gpu=0.5), reason=reason, position=2
            )
            mark = a.start("result = simgpu.memory_info()[1]")
            said = await a.hear("waits", mark)
            while "quota" not in said["waits"]:
                said = await a.hear("waits", len(a.said))
            await world.until(
                lambda: "quota" in (world.server.reported["a"].cell_waits or ""),
                "the sidebar says it too",
            )
            world.server.report_request("a", False, request=Share(gpu=0.5))
            await asyncio.sleep(0.1)
            assert not any("done" in body for body in a.said[mark:]), (
                "the grant is on its way: the cell must not run without its GPU"
            )
            world.scheduler.grant("a", gpu=0, request=HALF)
            assert (await a.hear("done", mark))["result"] == 80 << 30
            await world.until(
                lambda: world.server.reported["a"].cell_waits is None, "no cell waits any more"
            )

    play(story())


def test_a_kernel_that_asked_for_nothing_runs_at_once_and_simgpu_names_the_way_to_a_gpu():
    async def story():
        async with World() as world:
            a = await world.server.launch("a")
            world.server.report_request("a", False)
            assert "%gpu request" in (await a.run("simgpu.alloc('1GiB')"))["error"]

    play(story())


def test_questions_of_a_notebook_are_answered_here_or_by_its_server():
    async def story():
        async with World() as world:
            a = await world.server.launch("a")
            world.scheduler.grant("a", gpu=0, request=HALF)
            await world.attached("a")
            assert (await a.ask("status"))["body"]["state"] == "attached"
            for action in ("queue", "history"):
                asked = asyncio.ensure_future(a.ask(action))
                relayed = await world.server.answers.get()
                assert isinstance(relayed, RelayedRequest)
                world.server.send(
                    RelayedResponse(
                        n=relayed.n, error=ErrorDetail(code="unavailable", message="no scheduler")
                    )
                )
                assert (await asked)["error"]["message"] == "no scheduler"
            await world.server.disconnect()
            await world.until(lambda: not world.agent.socket_server.servers)
            assert (await a.ask("history"))["body"]["events"][0]["kind"] == "attached", (
                "what the agent knows is better than nothing"
            )

    play(story())


def test_suspend_and_resume_by_word_keep_the_contents():
    async def story():
        async with World() as world:
            a = await world.server.launch("a")
            world.scheduler.grant("a", gpu=0, request=HALF)
            await a.run("bufs.append(simgpu.alloc('10GiB')); bufs[0].fill(7)")
            assert (await a.ask("suspend"))["body"]["state"] == "suspended"
            assert world.used() == {0: 0, 1: 0}
            assert (await a.ask("resume"))["body"]["state"] == "attached"
            assert (await a.ask("suspend"))["body"]["state"] == "suspended"
            assert (await a.run("result = bufs[0].sum() == 7 * bufs[0].nbytes"))["result"] is True
            world.server.send(KernelActionRequest(n=9, kernel_id="a", action="pin"))
            assert (await world.server.answers.get()).error is None
            assert world.record("a").preferences.pinned

    play(story())


def test_a_cell_that_waits_for_its_own_memory_shows_how_much_is_restored():
    async def story():
        async with World(copy_gib_s=8) as world:
            a = await world.server.launch("a")
            world.scheduler.grant("a", gpu=0, request=HALF)
            await a.run("bufs.append(simgpu.alloc('10GiB'))")
            assert (await a.ask("suspend"))["body"]["state"] == "suspended"
            cell = asyncio.ensure_future(a.run("result = 1"))
            told = await world.until(
                lambda: "Restoring" in world.record("a").gate.text and world.record("a").gate.text
            )
            assert told == "Restoring 10 GiB of saved GPU memory."
            assert (await cell)["result"] == 1

    play(story())


def test_a_dead_agents_socket_is_replaced_and_a_living_agents_is_not():
    async def story():
        async with World() as world:
            second = Agent(world.config, world.devices, None)
            with pytest.raises(GpuShareError, match="another agent"):
                await second.start()

    play(story())
