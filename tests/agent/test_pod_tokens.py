"""Tokens of kernels in pods: the agent hands them to the Jupyter server of the pod."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from tests.agent.pods import PodNode, as_node_root
from tests.agent.simulated_node import play

pytestmark = as_node_root
SERVER = """
import asyncio, json, logging, os, stat
os.environ["JUPYTER_RUNTIME_DIR"] = {home!r}
from jupyter_gpushare.server_extension.clients.agent_client import AgentClient
from jupyter_gpushare.server_extension.clients.startup import StartupState
from jupyter_gpushare.server_extension.kernels.kernel_registry import KernelRegistry
from jupyter_gpushare.server_extension.kernels.launches import KernelLaunches
from jupyter_gpushare.server_extension.launch.launch_plan import LaunchPlan

class Listener:
    def agent_connected(self, welcome): pass
    def agent_message(self, message): pass

plan = LaunchPlan("bootstrap", "")

async def main():
    log, startup = logging.getLogger(), StartupState()
    startup.finished.set()
    agent = AgentClient({socket!r}, log)
    launches = KernelLaunches(KernelRegistry(), agent, startup, log, user=lambda: "u")
    task = asyncio.create_task(agent.run(Listener()))
    env = await launches.register("k", name="", language="python", plan=plan)
    path = env["GPUSHARE_TOKEN_FILE"]
    found = [path, stat.S_IMODE(os.stat(path).st_mode), env["GPUSHARE_AGENT"], open(path).read()]
    launches.ended("k")
    task.cancel()
    await asyncio.wait([task])
    return [*found, os.path.exists(path)]

result = asyncio.run(main())
"""


def test_the_jupyter_server_of_a_pod_keeps_the_tokens_of_its_kernels():
    """In its runtime folder, and removes them."""

    async def story():
        async with PodNode() as node:
            pod, path = node.his.pod, str(node.config.socket_path())
            code = SERVER.format(home=str(pod.home), socket=path)
            answer = await asyncio.to_thread(pod.run, code)
            assert "trace" not in answer, answer["trace"]
            file, mode, agent, token, remains = answer["result"]
            assert Path(file).parents[1] == Path(pod.home, "gpushare")
            assert (mode, agent, remains) == (0o600, path, False)
            assert len(token) > 20
            assert "gpushare" not in os.listdir(pod.home), "the file is in the pod"

    play(story())
