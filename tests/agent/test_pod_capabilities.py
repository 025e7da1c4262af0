"""Which capabilities an agent needs that serves pods: root without any but these, as a container is
given them, and that each of them is needed.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from jupyter_gpushare.messages import KernelGone
from tests.agent.pods import ROOT, PodNode, as_node_root
from tests.agent.simulated_node import play

pytestmark = as_node_root
NEEDED = ("kill", "sys_ptrace", "dac_read_search")
"""As in jupyter_gpushare/kube/chart/templates/agent.yaml."""


class ConfinedNode(PodNode):
    """The agent is a process of its own. There is no scheduler."""

    def __init__(self, capabilities: tuple[str, ...]) -> None:
        super().__init__()
        kept = "".join(f",+{name}" for name in capabilities)
        self._prefix = [
            "setpriv",
            "--pdeathsig",
            "KILL",
            "--bounding-set",
            f"-all{kept}",
            "--inh-caps",
            "-all",
            "--",
        ]

    async def start_agent(self) -> None:
        argv = ["--users", "pods", "--simulate", "1", "--scheduler", "http://127.0.0.1:9"]
        argv += ["--state-dir", str(self.state_dir), "--socket", str(self.config.socket_path())]
        self.log = self.state_dir / "agent.log"
        with self.log.open("wb") as log:
            self.agent = await asyncio.create_subprocess_exec(
                *self._prefix,
                *(sys.executable, "-m", "jupyter_gpushare.cli", "agent", *argv),
                stdout=log,
                stderr=log,
                cwd=ROOT,
                env=os.environ | {"PYTHONPATH": str(ROOT), "NODE_NAME": "n0"},
            )
        self.agent.stop = self.stop_agent
        await self.until(self.config.socket_path().exists, "it listens", 30)

    async def stop_agent(self) -> None:
        self.agent.terminate()
        await self.agent.wait()

    def books(self) -> object:
        return self.log.read_text()

    async def until_logged(self, words: str) -> None:
        await self.until(lambda: words in self.log.read_text(), f"log: {words}", 30)


def test_these_capabilities_are_enough():
    async def story():
        async with ConfinedNode(NEEDED) as node:
            for server in (node.hers, node.his):
                kernel_id = f"k{server.pod.user}"
                child = await server.launch(kernel_id, wants_gpu=False)
                assert (await child.run("result = os.getuid()"))["result"] == int(server.pod.user)
                assert (await child.ask("status"))["body"]["kernel_id"] == kernel_id
                (main,) = psutil.Process(child.pid).children()
                server.send(KernelGone(kernel_id=kernel_id, restarting=False))
                await node.until(lambda main=main: not main.is_running(), "it is ended")

    play(story())


LACKING = {
    "sys_ptrace": "is not kernel a: it does not belong to the kernel's processes",
    "dac_read_search": "is not kernel a: it does not belong to the kernel's processes",
    "kill": "kernel a: some of its processes cannot be killed",
}


@pytest.mark.parametrize("missing", NEEDED)
def test_each_of_them_is_needed(missing: str):
    """Without the first two, the environment of a kernel of another user cannot be read."""

    async def story():
        kept = tuple(name for name in NEEDED if name != missing)
        async with ConfinedNode(kept) as node:
            launching = asyncio.ensure_future(node.hers.launch("a", wants_gpu=False))
            if missing == "kill":
                await launching
                node.hers.send(KernelGone(kernel_id="a", restarting=False))
            await node.until_logged(LACKING[missing])
            launching.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await launching

    play(story())


def test_an_agent_without_the_pids_of_its_host_ends_with_one_line(tmp_path: Path):
    """In a pid namespace of its own, as a container without hostPID."""
    argv = ["--users", "pods", "--simulate", "1", "--scheduler", "http://127.0.0.1:9"]
    container = ["unshare", "--pid", "--fork", "--mount", "--mount-proc", "--kill-child"]
    done = subprocess.run(
        [*container, sys.executable, "-m", "jupyter_gpushare.cli", "agent", *argv],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env=os.environ
        | {"PYTHONPATH": str(ROOT), "KUBERNETES_SERVICE_HOST": "10.0.0.1"}
        | {"GPUSHARE_STATE": str(tmp_path)},
        timeout=50,
        check=False,
    )
    assert done.returncode == 2
    assert done.stderr.startswith("error: this agent cannot see which pod a process belongs to")
    assert len(done.stderr.splitlines()) == 1
    assert "hostPID: true" in done.stderr
