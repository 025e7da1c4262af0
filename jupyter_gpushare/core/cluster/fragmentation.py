"""Measures how much idle GPU capacity a placement leaves useless. Option `placement.gpu:
defragment`.

Bin-packing looks at GPUs only. But a device with 190 milli free is useless to requests for 460, and
eight idle GPUs are useless on a node without CPU. So idle capacity is measured by its use to the
requests that run or wait in the pool, on average. Two measures are blended:

* the capacity on devices with room for one such pod, if the node's CPU and memory suffice for one.
  This is the measure of "Beware of Fragmentation" (USENIX ATC '23);
* the same, but no more than the node's CPU and memory can supply. It predicts that CPU runs out,
  and it distinguishes nearly any two placements, so that node names hardly matter.

Requests are counted by kind: the same GPUs on the same nodes. The mean weighs a kind by its
frequency and by its scarcity, the GPUs of the pool per GPU of the nodes that admit it.

All numbers are integers, so a replay gives the same result.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..model.amounts import MILLI
from ..model.requirements import PodRequirements
from .nodes import NodeState

__all__ = ["PLENTY", "Ints", "Kind", "FragmentationMeasure", "typical"]

Ints = NDArray[np.int64]

ONE_FITS: Final = 4
ALL_ARE_FED: Final = 1
"""Weights of the two measures. Results are not sensitive to them: from 10:1 to 1:1 the public trace
is packed 95.70 to 95.55 % full (docs/measurements/traces.md).
"""
PARTS: Final = 200
"""Frequencies are rounded to half percents, which drops rare kinds, so that a new request seldom
invalidates scores.
"""
CPU_STEP: Final = 500
MEMORY_STEP: Final = 1024
"""Means are rounded up to steps, milli-CPU and MiB, for the same reason."""
SCARCITY: Final = 10
"""The weight of a kind that every node admits; others count more (decision 0027)."""
PLENTY: Final = 1 << 40
"""CPU or memory above this counts as unlimited, so that products fit in 64 bits."""


class Kind(NamedTuple):
    """Requests for the same GPUs on the same nodes; they may differ in CPU and memory."""

    need: PodRequirements
    """One of them, which tells the GPUs and the nodes."""
    frequency: int
    """In half percents."""
    cpu: int
    """The mean, milli-CPU."""
    memory: int
    """The mean, MiB."""


def typical(counts: Mapping[PodRequirements, int]) -> tuple[Kind, ...]:
    """The kinds of GPU requests, most frequent first, ties by request. MIG instances are not
    included.
    """
    groups: dict[tuple[object, ...], list[tuple[PodRequirements, int]]] = {}
    total = 0
    for need, count in counts.items():
        if count > 0 and need.gpu and not need.mig:
            total += count
            groups.setdefault(_gpus_and_nodes(need), []).append((need, count))
    kinds = [kind for group in groups.values() if (kind := _kind_of(group, total)).frequency]
    kinds.sort(key=lambda kind: (-kind.frequency, kind.need.order))
    return tuple(kinds)


def _gpus_and_nodes(need: PodRequirements) -> tuple[object, ...]:
    """What requests of one kind have in common."""
    gpus = need.whole, need.share, need.memory, need.devices
    return *gpus, need.node_names, need.selector, need.tolerations


def _kind_of(group: Sequence[tuple[PodRequirements, int]], total: int) -> Kind:
    count = sum(n for _, n in group)
    cpu = sum(need.cpu * n for need, n in group)
    memory = sum(need.ram * n for need, n in group)
    return Kind(
        min((need for need, _ in group), key=_without_nodes),
        (2 * PARTS * count + total) // (2 * total),
        -(-(cpu // count) // CPU_STEP) * CPU_STEP,
        -(-(memory // count) // MEMORY_STEP) * MEMORY_STEP,
    )


def _without_nodes(need: PodRequirements) -> tuple[object, ...]:
    """An order of the requests of one kind."""
    others = repr(need.affinity), repr(need.anti_affinity)
    return need.cpu, need.ram, need.labels, *others


class FragmentationMeasure:
    """The use of idle GPUs on these nodes to these kinds of requests. `rows` are indexes into
    `nodes`.
    """

    def __init__(self, kinds: Sequence[Kind], nodes: Sequence[NodeState]) -> None:
        needs = [kind.need for kind in kinds]
        self.cpu: Ints = np.array([max(1, kind.cpu) for kind in kinds], dtype=np.int64)
        self.memory: Ints = np.array([max(1, kind.memory) for kind in kinds], dtype=np.int64)
        self.devices: Ints = np.array(
            [need.whole or need.devices for need in needs], dtype=np.int64
        )
        self.capacity: Ints = np.array([node.capacity for node in nodes], dtype=np.int64)
        sizes = {c: [need.portion(c) for need in needs] for c in set(self.capacity.tolist())}
        self.sizes: Ints = np.array(
            [sizes[c] for c in self.capacity.tolist()], dtype=np.int64
        ).reshape(len(nodes), len(needs))
        for row, node in enumerate(nodes):
            shut = [column for column, need in enumerate(needs) if not node.admits(need)]
            self.sizes[row, shut] = (
                PLENTY  # excluded by labels or taints: no device is large enough
            )
        frequencies: Ints = np.array([kind.frequency for kind in kinds], dtype=np.int64)
        self.weights = frequencies * self._scarcity(nodes)

    def _scarcity(self, nodes: Sequence[NodeState]) -> Ints:
        """[kind] how many times more GPUs the pool has than the nodes that admit the kind.

        A GPU that only a few kinds can use is spared for them: otherwise requests that could run
        anywhere take it, because each of them alone loses little.
        """
        gpus: Ints = np.array([node.node.gpus for node in nodes], dtype=np.int64)
        admitting = np.maximum(1, gpus @ (self.sizes <= self.capacity[:, None]))
        result: Ints = (2 * SCARCITY * gpus.sum() + admitting) // (2 * admitting)
        return result

    def on_devices(self, rows: NDArray[np.intp], free: Ints) -> Ints:
        """[row, device, kind] the free MiB of each device, or 0 where one pod of the kind does not
        fit. `free` is [row, device] in MiB.
        """
        free_mib: Ints = free[:, :, None]
        return np.where(free_mib >= self.sizes[rows][:, None, :], free_mib, 0)

    def useful(self, rows: NDArray[np.intp], amounts: Ints, spare: Ints) -> Ints:
        """[row, choice] the use of nodes with `amounts` on fitting devices, [row, choice, kind],
        and `spare` CPU and memory, [row, 2].

        In MiB x weights. A kind that needs several devices counts their sum.
        """
        per_pod = self.sizes[rows] * self.devices
        cpu, memory = spare[:, :1], spare[:, 1:2]
        fed = np.minimum(cpu * per_pod // self.cpu, memory * per_pod // self.memory)
        fed[(cpu < self.cpu) | (memory < self.memory)] = 0
        enough = (amounts >= per_pod[:, None, :]) & (fed > 0)[:, None, :]
        amounts = np.where(enough, amounts, 0)
        blended = ONE_FITS * amounts + ALL_ARE_FED * np.minimum(amounts, fed[:, None, :])
        result: Ints = blended @ self.weights
        return result

    def loss(self, rows: NDArray[np.intp], before: Ints, after: Ints, taken: Ints) -> Ints:
        """[row, choice] how much more is useless after a pod that takes `taken` MiB, [row], turns
        `before`, [row], into `after`.

        In thousandths of a GPU x weights, so that GPUs of different sizes compare.
        """
        used = (ONE_FITS + ALL_ARE_FED) * int(self.weights.sum()) * taken
        result: Ints = (
            (before[:, None] - after - used[:, None]) * MILLI // self.capacity[rows][:, None]
        )
        return result
