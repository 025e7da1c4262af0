"""Measures how much idle GPU capacity a placement leaves useless. Option `placement.gpu:
defragment`.

Bin-packing looks at GPUs only. But a device with 190 milli free is useless to requests for 460, and
eight idle GPUs are useless on a node without CPU. So idle capacity is measured by its use to the
requests that run or wait in the pool, on average. Two measures are blended:

* the capacity on devices with room for one such pod, if the node's CPU and memory suffice for one.
  This is the measure of "Beware of Fragmentation" (USENIX ATC '23);
* the same, but no more than the node's CPU and memory can supply. It predicts that CPU runs out,
  and it distinguishes nearly any two placements, so that node names hardly matter.

All numbers are integers, so a replay gives the same result.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ..model.amounts import MILLI
from ..model.requirements import PodRequirements
from .nodes import NodeState

__all__ = ["PLENTY", "Ints", "Kind", "FragmentationMeasure", "typical"]

Ints = NDArray[np.int64]
Kind = tuple[PodRequirements, int]
"""A request and its frequency in whole percents."""

ONE_FITS: Final = 4
ALL_ARE_FED: Final = 1
"""Weights of the two measures. Results are not sensitive to them: from 10:1 to 1:1 the public trace
is packed 95.70 to 95.55 % full (docs/measurements/traces.md).
"""
PERCENT: Final = 100
"""Rounding to whole percents drops rare requests, so that a new request seldom invalidates scores.
"""
PLENTY: Final = 1 << 40
"""CPU or memory above this counts as unlimited, so that products fit in 64 bits."""


def typical(counts: Mapping[PodRequirements, int]) -> tuple[Kind, ...]:
    """The kinds of GPU requests, most frequent first, ties by request. MIG instances are not
    included.
    """
    members_to_place = {
        need: n for need, n in counts.items() if n > 0 and need.gpu and not need.mig
    }
    total = sum(members_to_place.values())
    shares = (
        (need, (2 * PERCENT * n + total) // (2 * total)) for need, n in members_to_place.items()
    )
    return tuple(
        sorted(
            ((need, share) for need, share in shares if share),
            key=lambda kind: (-kind[1], kind[0].order),
        )
    )


class FragmentationMeasure:
    """The use of idle GPUs on these nodes to these kinds of requests. `rows` are indexes into
    `nodes`.
    """

    def __init__(self, kinds: Sequence[Kind], nodes: Sequence[NodeState]) -> None:
        needs = [need for need, _ in kinds]
        self.weights: Ints = np.array([weight for _, weight in kinds], dtype=np.int64)
        self.cpu: Ints = np.array([max(1, need.cpu) for need in needs], dtype=np.int64)
        self.memory: Ints = np.array([max(1, need.ram) for need in needs], dtype=np.int64)
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

    def on_devices(self, rows: NDArray[np.intp], free: Ints) -> Ints:
        """[row, device, kind] the free MiB of each device, or 0 where one pod of the kind does not
        fit. `free` is [row, device] in MiB.
        """
        free_mib: Ints = free[:, :, None]
        return np.where(free_mib >= self.sizes[rows][:, None, :], free_mib, 0)

    def useful(self, rows: NDArray[np.intp], amounts: Ints, spare: Ints) -> Ints:
        """[row, choice] the use of nodes with `amounts` on fitting devices, [row, choice, kind],
        and `spare` CPU and memory, [row, 2].

        In MiB x percents x weights. A kind that needs several devices counts their sum.
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

        In thousandths of a GPU x percents x weights, so that GPUs of different sizes compare.
        """
        used = (ONE_FITS + ALL_ARE_FED) * int(self.weights.sum()) * taken
        result: Ints = (
            (before[:, None] - after - used[:, None]) * MILLI // self.capacity[rows][:, None]
        )
        return result
