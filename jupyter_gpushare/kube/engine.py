"""Reads nodes and pods, and tells the scheduler what follows. It writes nothing to Kubernetes.

While the API server is away, everything goes on with what is known; the status says since when.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Any, Final, Protocol

from jupyter_gpushare import messages as m
from jupyter_gpushare.aio import BackgroundTasks
from jupyter_gpushare.core.model.errors import GpuShareError
from jupyter_gpushare.core.model.platform_node import PlatformNode

from . import names
from .api_client import ClusterApi, Resource
from .inventory import Inventory
from .objects import KubePod, read_node, read_pod
from .reflector import Reflector
from .rules import RuleSettings
from .token_review import ServiceAccountTokens

__all__ = ["EngineConfig", "KubernetesEngine", "SchedulerSide"]

log = logging.getLogger("gpushare.kubernetes")

GATHER_S: Final = 0.1
"""Changes that arrive within this time are applied together."""
STATUS_S: Final = 1.0
STATUS_LINES: Final = 20
OPEN_S: Final = 10.0
STORE_S: Final = 1.0
"""Pause after the store did not answer."""
OPERATOR_APPS: Final = frozenset({names.TOOLKIT_APP, *names.DCGM_EXPORTER_APPS})


class SchedulerSide(Protocol):
    """What the engine needs of the scheduler."""

    def names(self) -> set[str]:
        """Nodes that Kubernetes once described."""

    def update(self, nodes: dict[str, PlatformNode], deleted: Collection[str] = ()) -> None:
        """Puts descriptions into force."""

    def set_status(self, status: m.KubernetesStatus) -> None:
        """Publishes the engine's status."""

    def connected(self) -> Collection[str]:
        """Nodes whose agents are connected."""

    def revoke(self, pods: Collection[str]) -> None:
        """Ends the connections of agents whose pods (uids) are gone."""


@dataclass(frozen=True, slots=True)
class EngineConfig:
    """`operator_namespace` "": the GPU Operator's pods are not read."""

    namespace: str = names.NAMESPACE
    operator_namespace: str = ""
    reserve: bool = True


class KubernetesEngine:
    """A background service of the scheduler that leads."""

    def __init__(
        self,
        api: ClusterApi,
        config: EngineConfig,
        scheduler: SchedulerSide,
        tokens: ServiceAccountTokens,
        *,
        pause_s: float = 1.0,
    ) -> None:
        self._api, self._config, self._scheduler, self._tokens = api, config, scheduler, tokens
        self.inventory = Inventory(RuleSettings(config.reserve))
        self.nodes = Reflector(api, Resource("nodes"), read_node, self._put_node, pause_s=pause_s)
        own = Resource("pods", config.namespace)
        self.pods = Reflector(api, own, read_pod, self._put_pod, pause_s=pause_s)
        self.operator: Reflector[KubePod] | None = None
        if config.operator_namespace not in ("", config.namespace):
            theirs = Resource("pods", config.operator_namespace)
            self.operator = Reflector(
                api, theirs, _read_operator_pod, self._put_pod, pause_s=pause_s
            )
        self._tasks = BackgroundTasks(log, level=logging.CRITICAL)
        self._changed = asyncio.Event()
        self._is_first = True
        self._gone: set[str] = set()

    def start(self) -> None:
        """Starts reading, on the running event loop."""
        self._tasks.spawn(self._run(), name="gpushare-kubernetes")

    async def stop(self) -> None:
        await self._tasks.close()
        await self._api.close()

    async def _run(self) -> None:
        await self._open()
        for reflector in self._reflectors():
            name = f"gpushare-kubernetes-{reflector.resource}"
            self._tasks.spawn(reflector.run(), name=name)
        self._tasks.spawn(self._watch_status(), name="gpushare-kubernetes-status")
        while True:
            await self._changed.wait()
            await asyncio.sleep(GATHER_S)
            self._changed.clear()
            try:
                self.apply()
            except GpuShareError as error:
                log.error("changes of nodes wait for the store: %s", error.message)
                self._changed.set()
                await asyncio.sleep(STORE_S)
            except Exception:
                log.exception("changes of nodes could not be applied")
                await asyncio.sleep(STORE_S)

    async def _open(self) -> None:
        while True:
            try:
                return await self._api.open()
            except GpuShareError as error:  # it was readable when the scheduler started
                log.error("%s", error.message)
                await asyncio.sleep(OPEN_S)

    def _reflectors(self) -> list[Reflector[Any]]:
        return [self.nodes, self.pods, *([self.operator] if self.operator else [])]

    # -- changes --

    def _put_node(self, key: str, node: Any) -> None:
        self.inventory.put_node(key, node)
        self._changed.set()

    def _put_pod(self, key: str, pod: KubePod | None) -> None:
        before = self.inventory.pods.get(key)
        was_agent = before is not None and before.component == names.COMPONENT_AGENT
        if before is not None and was_agent and (pod is None or pod.uid != before.uid):
            self._gone.add(before.uid)
        self.inventory.put_pod(key, pod)
        self._changed.set()

    def apply(self) -> None:
        """Hands changes on, once everything has been read. Raises StoreUnavailable."""
        gone, self._gone = self._gone, set()
        if gone:
            self._tokens.forget(gone)
            self._scheduler.revoke(gone)
        if not self._is_complete():
            return
        self.inventory.settings = self._settings()
        changed = set(self.inventory.changed)
        if self._is_first:
            changed |= self._scheduler.names()
        described = {name: self.inventory.describe(name) for name in changed if name}
        nodes = {name: node for name, node in described.items() if node is not None}
        self._scheduler.update(nodes, [name for name in described if name not in nodes])
        self.inventory.changed -= changed
        self._is_first = False

    def _is_complete(self) -> bool:
        """Whether nodes were listed, and pods were or may not be."""
        pods = [reflector for reflector in self._reflectors() if reflector is not self.nodes]
        return self.nodes.is_synced and all(one.is_synced or one.is_forbidden for one in pods)

    def _settings(self) -> RuleSettings:
        problem = "" if self.pods.is_synced else f"slots are not known: {self.pods.problem}"
        sees = self.operator is not None and self.operator.is_synced
        is_same = self._config.operator_namespace == self._config.namespace
        return RuleSettings(self._config.reserve, problem, sees or is_same)

    # -- status --

    async def _watch_status(self) -> None:
        while True:
            if self.inventory.settings != self._settings():
                self._changed.set()  # a permission was given or taken
            self._scheduler.set_status(self.status())
            await asyncio.sleep(STATUS_S)

    def status(self) -> m.KubernetesStatus:
        """Managed nodes, problems, and since when the API server has been away."""
        away = [since for one in self._reflectors() if (since := one.away_since) is not None]
        problems = [one.problem for one in self._reflectors() if one.is_forbidden]
        problems += [self._tokens.problem] if self._tokens.problem else []
        if self.nodes.is_synced:
            problems += self.inventory.agent_problems(self._scheduler.connected())
        return m.KubernetesStatus(
            nodes=len(self.inventory.managed()),
            unreachable_since=m.stamp(min(away)) if away else None,
            problems=problems[:STATUS_LINES],
        )


def _read_operator_pod(raw: Any) -> KubePod | None:
    """Only pods that the rules look at: a large cluster has thousands of others."""
    pod = read_pod(raw)
    if pod is None or pod.app not in OPERATOR_APPS:
        return None
    return replace(pod, component="")
