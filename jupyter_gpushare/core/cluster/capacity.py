"""What a pool's machines could hold if they were empty: the difference between "not now" and
"never". Knows nothing of what runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from ..model.model import Node
from ..model.requirements import PodRequirements
from .nodes import NodeState

__all__ = ["EmptyClusterFit", "EmptyCapacity"]


class EmptyClusterFit(NamedTuple):
    """Where a pod would fit on empty machines: the number of ready ones, and those that are not
    ready.
    """

    ready: int
    unready: tuple[Node, ...]
    admitting: bool
    """Whether labels, names and taints let it in anywhere."""


class EmptyCapacity:
    """The nodes of a pool as they are known, by name. Alike machines are looked at once; verdicts
    are kept, as they never change.
    """

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
        # A GPU that is ill now is not ill for ever: what needs it waits, and is not told that it
        # never fits.
        self._kinds = [
            (NodeState(replace(alike[0], unhealthy=frozenset()), ""), alike)
            for alike in kinds.values()
        ]
        self._verdicts: dict[PodRequirements, EmptyClusterFit] = {}

    def fitting(self, need: PodRequirements) -> EmptyClusterFit:
        """Where this pod could ever be."""
        verdict = self._verdicts.get(need)
        if verdict is None:
            verdict = self._verdicts[need] = self._judge(need)
        return verdict

    def _judge(self, need: PodRequirements) -> EmptyClusterFit:
        ready, unready, admitting = 0, [], False
        for state, alike in self._kinds:
            named = [node for node in alike if not need.node_names or node.name in need.node_names]
            if not named or not state.carries(need):
                continue
            admitting = True
            if not state.fits(need):
                continue
            if named[0].ready:
                ready += len(named)
            else:
                unready += named
        return EmptyClusterFit(ready, tuple(sorted(unready, key=lambda node: node.name)), admitting)
