"""An agent that ends while a Jupyter server launches a kernel, between its registration and its
process: the next agent learns of the kernel.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from pathlib import Path

from jupyter_gpushare.server_extension.clients.agent_client import AgentClient
from jupyter_gpushare.server_extension.clients.startup import StartupState
from jupyter_gpushare.server_extension.kernels.kernel_registry import KernelRegistry
from jupyter_gpushare.server_extension.kernels.launches import KernelLaunches
from jupyter_gpushare.server_extension.launch.launch_plan import LaunchPlan
from tests.agent.simulated_node import ROOT, Child, World, play

PLAN = LaunchPlan("bootstrap", "")
LOG = logging.getLogger("test")


class JupyterServer:
    """What a Jupyter server reports to the agent. `connections`: how often it connected."""

    def __init__(self, world: World) -> None:
        startup, self.connections = StartupState(), 0
        startup.finished.set()
        self.agent = AgentClient(str(world.config.socket_path()), LOG)
        self.launches = KernelLaunches(
            KernelRegistry(), self.agent, startup, LOG, user=lambda: "alice"
        )

    def agent_connected(self, welcome: object) -> None:
        self.connections += 1
        self.launches.agent_connected()

    def agent_message(self, message: object) -> None:
        pass

    async def launch(self, env: dict[str, str]) -> Child:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "tests.agent.kernel_process",
            stdin=-1,
            stdout=-1,
            cwd=ROOT,
            env=os.environ | env | {"PYTHONPATH": str(ROOT)},
        )
        self.launches.launched("k", process.pid)
        return Child(process)


def forget(state_dir: Path) -> None:
    """What an agent that is killed had not written yet."""
    for path in state_dir.glob("*journal*"):
        path.unlink()


def test_a_kernel_that_is_launched_meanwhile_is_registered_again(tmp_path, monkeypatch):
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(tmp_path))

    async def story():
        async with World() as world:
            server = JupyterServer(world)
            task = asyncio.create_task(server.agent.run(server))
            env = await server.launches.register("k", name="", language="python", plan=PLAN)
            await world.agent.stop()
            forget(world.state_dir)
            await world.start_agent()
            await world.server.connect()
            await world.until(lambda: server.connections == 2, "the server is connected again")
            assert "k" not in world.agent.node.kernels
            child = await server.launch(env)
            try:
                await child.hear("hello")
                await world.until(lambda: world.record("k").process.main.pid == child.pid, "known")
                assert world.record("k").registration.user == "alice"
            finally:
                await child.end()
                task.cancel()
                await asyncio.wait([task])

    play(story())
