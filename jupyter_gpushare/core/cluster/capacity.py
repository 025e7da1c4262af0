"""What a pool's nodes could hold if they were empty: tells "not now" from "never"."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final, NamedTuple

from ..model.model import Node
from ..model.requirements import PodRequirements
from .nodes import NodeState

__all__ = ["EmptyClusterFit", "EmptyCapacity"]


VERDICTS: Final = 20_000
"""Requests that are remembered: more than are usually pending at once."""


class EmptyClusterFit(NamedTuple):
    """Where a pod would fit on empty nodes: how many ready ones, and which that are not ready."""

    ready: int
    unready: tuple[Node, ...]
    admitting: bool
    """Whether labels, names and taints admit it on any node."""


class EmptyCapacity:
    """The nodes of a pool by name. Equal nodes are judged once, and results are kept."""

    def __init__(self, nodes: Sequence[Node]) -> None:
        self.nodes = tuple(nodes)
        kinds: dict[tuple[object, ...], list[Node]] = {}
        for node in nodes:
            labels, mig = tuple(sorted(node.labels.items())), tuple(sorted(node.mig.items()))
            key = (
                node.gpus,
                node.gpu_memory,
                node.cpu,
                node.memory,
                node.max_pods,
                node.ready,
                labels,
                mig,
                node.taints,
            )
            kinds.setdefault(key, []).append(node)
        # Unhealthy GPUs count here: a pod that needs one waits, rather than never fitting.
        self._kinds = [
            (NodeState(replace(equal[0], unhealthy=frozenset()), ""), equal)
            for equal in kinds.values()
        ]
        self._verdicts: dict[PodRequirements, EmptyClusterFit] = {}

    def fitting(self, need: PodRequirements) -> EmptyClusterFit:
        """The nodes on which this pod could ever run."""
        verdict = self._verdicts.get(need)
        if verdict is None:
            if len(self._verdicts) >= VERDICTS:
                self._verdicts.clear()
            verdict = self._verdicts[need] = self._judge(need)
        return verdict

    def _judge(self, need: PodRequirements) -> EmptyClusterFit:
        ready, unready, admitting = 0, [], False
        for state, nodes in self._kinds:
            named = [node for node in nodes if not need.node_names or node.name in need.node_names]
            if not named or not state.matches_labels(need):
                continue
            admitting = True
            if not state.fits(need):
                continue
            if named[0].ready:
                ready += len(named)
            else:
                unready += named
        return EmptyClusterFit(ready, tuple(sorted(unready, key=lambda node: node.name)), admitting)
