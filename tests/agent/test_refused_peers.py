"""What a process learns that the agent refuses: the reason, and nothing about others."""

from __future__ import annotations

import asyncio
import logging
from types import SimpleNamespace

import pytest

from jupyter_gpushare.core.model.errors import Unavailable
from jupyter_gpushare.kernel.connection import AgentAddress, AgentConnection
from jupyter_gpushare.server_extension.clients.agent_client import AgentClient
from tests.agent.pods import PodNode, as_node_root
from tests.agent.simulated_node import play

pytestmark = as_node_root
NO_POD = "it belongs to no pod, and this agent serves pods only"


def test_a_process_of_no_pod_is_refused_and_told_why(caplog: pytest.LogCaptureFixture):
    async def story():
        async with PodNode() as node:
            path = str(node.config.socket_path())
            client = AgentClient(path, logging.getLogger("server"))
            task = asyncio.create_task(client.run(SimpleNamespace()))
            await node.until(lambda: client.problem, "a Jupyter server has the reason")
            assert client.problem == f"the node agent of this machine refuses this server: {NO_POD}"
            assert client.problem in caplog.text
            with pytest.raises(Unavailable, match=NO_POD):
                await client.known_kernels(5)
            task.cancel()
            kernel = AgentConnection(AgentAddress("a", path, ""), lambda _: None)
            kernel.start()
            await node.until(lambda: kernel.problem(), "a kernel has the reason")
            assert kernel.loss_text == f"the node agent refuses this kernel: {NO_POD}"
            kernel.stop()
            assert f"is refused: {NO_POD}" in caplog.text

    play(story())
