"""Nodes with their pods, kept up to date by single changes. Pure."""

from __future__ import annotations

from collections.abc import Collection

from jupyter_gpushare.core.model.platform_node import PlatformNode

from .objects import KubeNode, KubePod
from .rules import RuleSettings, agent_problem, describe

__all__ = ["Inventory"]


class Inventory:
    """`changed` names the nodes whose description may have changed since it was cleared."""

    def __init__(self, settings: RuleSettings) -> None:
        self._settings = settings
        self.nodes: dict[str, KubeNode] = {}
        self.pods: dict[str, KubePod] = {}
        self._by_node: dict[str, dict[str, KubePod]] = {}
        self.changed: set[str] = set()

    @property
    def settings(self) -> RuleSettings:
        return self._settings

    @settings.setter
    def settings(self, settings: RuleSettings) -> None:
        if settings != self._settings:
            self._settings = settings
            self.changed |= self.nodes.keys()

    def put_node(self, key: str, node: KubeNode | None) -> None:
        """A node was added, changed or (None) deleted."""
        if self.nodes.get(key) == node:
            return
        if node is None:
            self.nodes.pop(key, None)
        else:
            self.nodes[key] = node
        self.changed.add(key)

    def put_pod(self, key: str, pod: KubePod | None) -> None:
        """A pod was added, changed or (None) deleted."""
        old = self.pods.pop(key, None)
        if pod is not None:
            self.pods[key] = pod
        if old == pod:
            return
        if old is not None:
            here = self._by_node[old.node]
            here.pop(key)
            if not here:
                del self._by_node[old.node]
            self.changed.add(old.node)
        if pod is not None:
            self._by_node.setdefault(pod.node, {})[key] = pod
            self.changed.add(pod.node)

    def on_node(self, name: str) -> list[KubePod]:
        """The pods on a node."""
        return list(self._by_node.get(name, {}).values())

    def describe(self, name: str) -> PlatformNode | None:
        """The node for the scheduler; None: it does not exist."""
        node = self.nodes.get(name)
        return None if node is None else describe(node, self.on_node(name), self._settings)

    def managed(self) -> list[KubeNode]:
        """The managed nodes by name."""
        found = [node for node in self.nodes.values() if node.is_managed]
        return sorted(found, key=lambda node: node.name)

    def agent_problems(self, connected: Collection[str]) -> list[str]:
        """Managed nodes without a connected agent, one sentence each."""
        problems = []
        for node in self.managed():
            problem = agent_problem(node, self.on_node(node.name), node.name in connected)
            if problem:
                problems.append(problem)
        return problems
