"""Kernels whose pod is gone have no grace time: no server of it can register them again."""

from __future__ import annotations

import pytest

from jupyter_gpushare.messages import LeaseReleased
from tests.agent.pods import PodNode, PodServer, as_node_root
from tests.agent.simulated_node import GIB, play

pytestmark = as_node_root
HALF = 40 * GIB
LONG_MS = 600_000


def released(node: PodNode) -> set[str]:
    return {body.lease for body in node.scheduler.heard if isinstance(body, LeaseReleased)}


async def launch(node: PodNode, server: PodServer, name: str) -> None:
    await server.launch(name)
    node.scheduler.grant(name, gpu=0, request=HALF)
    await node.attached(name)


def end_pod(server: PodServer) -> None:
    """As a kubelet does, whose containers end before the pod's own process."""
    for child in server.pod.main.children(recursive=True):
        child.kill()
    server.pod.main.kill()
    server.pod.main.wait(20)


@pytest.mark.parametrize("agent_is_away", [False, True])
def test_a_lease_ends_with_its_pod(agent_is_away: bool):
    async def story():
        async with PodNode(grace_ms=LONG_MS) as node:
            await launch(node, node.hers, "a")
            await launch(node, node.his, "b")
            if agent_is_away:
                await node.agent.stop()
            end_pod(node.hers)
            if agent_is_away:
                await node.start_agent()
                await node.his.connect()
            await node.until(lambda: released(node) == {"a.1/kernel"}, "her lease has ended")
            assert "b" in node.agent.node.kernels

    play(story())


def test_a_pod_that_lives_may_register_its_kernel_again():
    async def story():
        async with PodNode(grace_ms=LONG_MS) as node:
            await launch(node, node.hers, "a")
            await node.hers.kernels["a"].end()
            await node.until(lambda: node.record("a").process.gone_at is not None, "it has ended")
            node.agent.reconciler.step()
            assert not node.record("a").process.ending

    play(story())
