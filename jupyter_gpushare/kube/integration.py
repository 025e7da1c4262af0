"""Joins the engine and a scheduler. Called by the command line."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping

from jupyter_gpushare import messages as m
from jupyter_gpushare.core.model.platform_node import PlatformNode
from jupyter_gpushare.scheduler.app_config import SchedulerConfig
from jupyter_gpushare.scheduler.server import SchedulerServer

from . import names
from .api_client import ClusterApi, namespace_of_pod
from .engine import EngineConfig, KubernetesEngine
from .token_review import ServiceAccountTokens

__all__ = ["ServerSide", "account_of", "kubernetes_integration"]


class ServerSide:
    """A scheduler's server as the engine sees it."""

    def __init__(self, server: SchedulerServer) -> None:
        self._server, self._platform = server, server.service.platform

    def names(self) -> set[str]:
        return self._platform.names()

    def update(self, nodes: Mapping[str, PlatformNode], deleted: Collection[str] = ()) -> None:
        self._platform.update(nodes, deleted)

    def set_status(self, status: m.KubernetesStatus) -> None:
        self._platform.set_status(status)

    def connected(self) -> Collection[str]:
        return self._platform.connected()

    def revoke(self, pods: Collection[str]) -> None:
        self._server.agents.revoke(pods)


def kubernetes_integration(settings: SchedulerConfig) -> Callable[[SchedulerServer], None]:
    """Adds an engine to a server. Raises InvalidInput: there is no cluster."""
    asyncio.run(_check_configuration())
    config = EngineConfig(
        settings.kubernetes_namespace or namespace_of_pod() or names.NAMESPACE,
        settings.kubernetes_operator_namespace,
        settings.kubernetes_reserve,
    )
    account = settings.kubernetes_agent_account or account_of(config.namespace)

    def integrate(server: SchedulerServer) -> None:
        api = ClusterApi()
        tokens = ServiceAccountTokens(api, account)
        engine = KubernetesEngine(api, config, ServerSide(server), tokens)
        server.authenticator.external.insert(0, tokens)
        server.background_services.append(engine)

    return integrate


def account_of(namespace: str) -> str:
    """The user name of the agents' service account."""
    return f"system:serviceaccount:{namespace}:{names.AGENT_ACCOUNT}"


async def _check_configuration() -> None:
    """Opens the configuration once, so that a missing one is an error at the start."""
    api = ClusterApi()
    try:
        await api.open()
    finally:
        await api.close()
