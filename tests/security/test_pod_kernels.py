"""Kernels of other pods: every message of the socket about them is refused or has no effect, and
nothing is learned. From a pod with the same user id, and from one with root inside.
"""

from __future__ import annotations

import asyncio
import json
import secrets
from types import SimpleNamespace
from typing import Any, get_args

import pytest

from jupyter_gpushare.messages import FromKernel
from node_agent.socket.socket_server import NOT_THAT_KERNEL
from tests.agent.pods import PodNode, PodServer, as_node_root
from tests.agent.simulated_node import GIB, Child, play
from tests.security.machine import AgentSocket
from tests.security.test_kernels import CODES, MESSAGES, STABLE, previewed

pytestmark = [as_node_root, pytest.mark.slow]
HALF = 40 * GIB
ID = f"k-{secrets.token_hex(6)}"
ALLOC = "bufs.append(simgpu.alloc('10GiB')); bufs[0].fill(3)"


class PodSocket(AgentSocket):
    """A connection from a pod that keeps what it received."""

    def __init__(self, server: PodServer) -> None:
        self.sock = server.pod.connect(server.world.config.socket_path())
        self.sock.settimeout(20)
        self._lines = self.sock.makefile("rb")
        self.received: list[dict[str, Any]] = []

    def read(self) -> dict[str, Any] | None:
        message = super().read()
        if message is not None:
            self.received.append(message)
        return message


async def her_kernel(node: PodNode) -> tuple[Child, SimpleNamespace]:
    """Attached, with memory on the GPU; and what the table of messages needs of it."""
    child = await node.hers.launch(ID)
    node.scheduler.grant(ID, gpu=0, request=HALF)
    await node.attached(ID)
    assert "error" not in await child.run(ALLOC)
    await node.until(lambda: not node.record(ID).gate.running, "the cell is over")
    process = SimpleNamespace(pid=node.record(ID).process.main.pid)
    machine = SimpleNamespace(name=lambda who: who)
    return child, SimpleNamespace(id=ID, process=process, machine=machine, who="alice")


def stable(node: PodNode) -> dict[str, Any]:
    seen = node.agent.node.runtime(node.record(ID))
    record = node.record(ID)
    return {key: getattr(seen, key) for key in STABLE} | {
        "events": len(seen.events),
        "token": record.registration.token,
        "launch": record.process.launch,
        "main": record.process.main,
        "request": record.request_state,
    }


@pytest.mark.parametrize("root", [False, True], ids=["user 1000", "root"])
def test_no_message_about_a_kernel_of_another_pod_has_an_effect(root: bool):
    async def story():
        async with PodNode() as node:
            child, kernel = await her_kernel(node)
            other = node.his if root else await node.add_server()
            before = stable(node)
            for name, message in MESSAGES.items():
                line = PodSocket(other)
                await asyncio.to_thread(send, line, name, message, kernel)
                assert stable(node) == before, name
                learned = json.dumps([one for one in line.received if "error" not in one])
                assert ID not in learned, name
            assert (await child.run("result = bufs[0].sum() / bufs[0].nbytes"))["result"] == 3
            assert ID not in other.reported
            if not root:
                await other.close()

    def send(line: PodSocket, name: str, message, kernel: SimpleNamespace) -> None:
        assert ID not in {one["kernel_id"] for one in line.hello()}
        assert message(line, kernel) == CODES.get(name.partition(" ")[0], ""), name
        later = line.register(f"k-{secrets.token_hex(6)}")
        assert not later.get("error"), "what was sent before has been handled by now"
        line.close()

    play(story())


def test_the_same_messages_have_an_effect_on_an_own_kernel():
    """Otherwise the test above would prove nothing."""

    async def story():
        async with PodNode() as node:
            _child, kernel = await her_kernel(node)
            for name, has_effect in {
                "kernel_act pin": lambda: node.record(ID).preferences.pinned,
                "kernel_act unpin": lambda: not node.record(ID).preferences.pinned,
                "kernel_act suspend": lambda: node.record(ID).memory.suspended,
                "kernel_outlook": lambda: node.record(ID).request_state.refuses == "no",
                "kernel_gone": lambda: ID not in node.agent.node.kernels,
            }.items():
                line = PodSocket(node.hers)
                assert [one["kernel_id"] for one in await asyncio.to_thread(line.hello)] == [ID]
                assert await asyncio.to_thread(MESSAGES[name], line, kernel) == ""
                await node.until(has_effect, name)
                line.close()

    play(story())


def test_a_preview_of_her_kernel_is_that_of_an_unknown_one():
    async def story():
        async with PodNode() as node:
            await her_kernel(node)
            line = PodSocket(node.his)
            hers, unknown = await asyncio.to_thread(previews, line)
            assert hers == unknown
            line.close()

    def previews(line: PodSocket) -> list[dict[str, Any]]:
        line.hello()
        found = [previewed(line, kernel_id) for kernel_id in (ID, "k-unknown")]
        return [{key: value for key, value in one.items() if key != "n"} for one in found]

    play(story())


KERNEL_TAGS = sorted(kind.__struct_config__.tag for kind in get_args(FromKernel))


@pytest.mark.parametrize("proxy", [False, True], ids=["kernel", "proxy"])
def test_nothing_that_a_kernel_says_counts_from_another_pod(proxy: bool):
    """With the token of her kernel; from the first message on the connection is closed, with the
    words that a process with the id of no kernel gets.
    """

    async def story():
        async with PodNode() as node:
            child, _ = await her_kernel(node)
            before = stable(node)
            token = (await child.run("result = open(os.environ['GPUSHARE_TOKEN_FILE']).read()"))[
                "result"
            ]
            hello = {"type": "kernel_hello", "kernel_id": ID, "token": token, "pid": child.pid}
            if proxy:
                hello["proxy"] = True
            for server in (node.his, await node.add_server()):
                line = PodSocket(server)
                await asyncio.to_thread(speak, line, hello)
                assert line.received == [{"type": "refused", "message": NOT_THAT_KERNEL}]
                assert stable(node) == before
                line.close()
            assert (await child.run("result = 1"))["result"] == 1
            await server.close()

    def speak(line: PodSocket, hello: dict[str, Any]) -> None:
        bodies = [hello, *({"type": tag, "n": 1, "action": "suspend"} for tag in KERNEL_TAGS)]
        line.send_raw(b"".join(json.dumps(body).encode() + b"\n" for body in bodies))
        while line.read() is not None:
            pass

    play(story())
