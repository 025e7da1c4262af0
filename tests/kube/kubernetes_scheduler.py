"""A scheduler with an engine on a real control plane, and agents that show Kubernetes' tokens."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

# takes seconds on a busy machine: before a server runs
from kubernetes.aio.client import AuthenticationV1Api, CoreV1Api  # noqa: F401

from jupyter_gpushare import messages as m
from jupyter_gpushare.client import AgentLink
from jupyter_gpushare.core.model.errors import GpuShareError
from jupyter_gpushare.kube import names
from jupyter_gpushare.kube.api_client import ClusterApi
from jupyter_gpushare.kube.engine import EngineConfig, KubernetesEngine
from jupyter_gpushare.kube.integration import ServerSide, account_of
from jupyter_gpushare.kube.token_review import ServiceAccountTokens
from tests.kube.control_plane import ControlPlane
from tests.scheduler.agents import FakeAgent
from tests.scheduler.agents import node as agent_node
from tests.scheduler.running_server import RunningServer, open_server

__all__ = ["Kubernetes", "add_pod", "until_async"]

WITHIN_S: Final = 60.0


async def until_async(condition: Callable[[], Any], what: str) -> Any:
    """The first true result of a function, which may be a coroutine function."""
    answer, deadline = None, time.monotonic() + WITHIN_S
    while time.monotonic() < deadline:
        answer = condition()
        if asyncio.iscoroutine(answer):
            answer = await answer
        if answer:
            return answer
        await asyncio.sleep(0.05)
    raise AssertionError(f"not within {WITHIN_S:.0f} s: {what}; last: {answer!r}")


class Kubernetes:
    """A running scheduler beside a control plane."""

    def __init__(
        self, cluster: ControlPlane, running: RunningServer, engine: KubernetesEngine
    ) -> None:
        self.cluster, self.running, self.engine = cluster, running, engine

    @classmethod
    @asynccontextmanager
    async def beside(
        cls,
        cluster: ControlPlane,
        folder: Path,
        config: EngineConfig,
        kubeconfig: Path | None = None,
    ) -> AsyncIterator[Kubernetes]:
        async with open_server(folder) as running:
            api = ClusterApi(kubeconfig=str(kubeconfig or cluster.kubeconfig))
            tokens = ServiceAccountTokens(api, account_of(config.namespace))
            side = ServerSide(running.server)
            engine = KubernetesEngine(api, config, side, tokens, pause_s=0.2)
            running.server.authenticator.external.insert(0, tokens)
            running.server.background_services.append(engine)
            engine.start()
            yield cls(cluster, running, engine)

    async def node(self, name: str) -> m.NodeRow | None:
        rows = (await self.running.admin.nodes()).nodes
        return next((row for row in rows if row.name == name), None)

    async def reasons(self, name: str) -> list[str] | None:
        row = await self.node(name)
        return None if row is None else row.reasons

    async def until_reasons(self, name: str, *expected: str) -> m.NodeRow:
        async def found() -> bool:
            return await self.reasons(name) == list(expected)

        await until_async(found, f"node {name} has the reasons {expected}")
        row = await self.node(name)
        assert row is not None
        return row

    def status(self) -> m.KubernetesStatus:
        return self.engine.status()

    @asynccontextmanager
    async def agent(self, name: str, token: str, gpus: int = 2) -> AsyncIterator[AgentLink]:
        async with FakeAgent(name, gpus).linked(self.running.client(token)) as link:
            await until_async(lambda: self._is_connected(name), f"agent of {name} is connected")
            yield link

    def _is_connected(self, name: str) -> bool:
        return name in self.running.server.service.platform.connected()

    async def refusal(self, name: str, token: str) -> str:
        """Why an agent with this token may not speak for the node."""
        try:
            async with asyncio.timeout(WITHIN_S), self.running.client(token).agent_link() as link:
                await link.send(m.AgentHello(version="1", node=agent_node(name)))
                async for order in link:
                    raise AssertionError(f"accepted: {order}")
        except GpuShareError as error:
            return error.message
        raise AssertionError("the connection ended without a reason")


def add_pod(
    cluster: ControlPlane, namespace: str, name: str, node: str, component: str, account: str = ""
) -> dict[str, Any]:
    """A pod of the chart, bound to a node; no kubelet starts it."""
    body = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "labels": {names.NAME_LABEL: names.PART_OF, names.COMPONENT_LABEL: component},
        },
        "spec": {
            "nodeName": node,
            "serviceAccountName": account or "default",
            "terminationGracePeriodSeconds": 0,
            "containers": [{"name": "main", "image": "none"}],
        },
    }
    return cluster.api.create(f"/api/v1/namespaces/{namespace}/pods", body)
