"""Placement `defragment`: candidate places for a pod, by how much idle GPU capacity they make
useless.

`fragmentation` measures that. Places that are free now come first; ties go to the fuller device,
then to the first node by name. The score depends on the pool's state alone. It is cached per
request and node until the node changes, so a pod costs what changed since the last equal request.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from ..model.requirements import PodRequirements
from .fragmentation import PLENTY, FragmentationMeasure, Ints, Kind, typical
from .nodes import HELD, LEAVING, PROMISED, NodeState

__all__ = ["Defragmenter", "PackingCandidate"]

CHUNK: Final = 256
"""Nodes that are scored at once, so that temporary arrays fit in the processor's cache."""
NEVER: Final = np.iinfo(np.int64).max
LATER: Final = 1 << 60
"""Added to the score of a place that is not free yet."""
BESIDE_GPUS: Final = 1 << 58
"""Added to the score of a node with GPUs for pods without GPUs."""
MEMO: Final = 512
"""Requests whose scores are cached."""


class PackingCandidate(NamedTuple):
    """A node and, for a share of one device, the device; None leaves the choice to the node."""

    node: NodeState
    device: int | None


class PackableNodes(Protocol):
    """The part of a pool that is needed here. `machines` is a new object whenever nodes change."""

    @property
    def nodes(self) -> Mapping[str, NodeState]: ...

    @property
    def bucket_of(self) -> Mapping[str, object]: ...

    @property
    def machines(self) -> object: ...


class _Scores:
    """One request: score and device per node, and the node's stamp for which they were computed."""

    __slots__ = ("device", "score", "seen")

    def __init__(self, nodes: int) -> None:
        self.score: Ints = np.full(nodes, NEVER, dtype=np.int64)
        self.device: Ints = np.full(nodes, -1, dtype=np.int64)
        self.seen: Ints = np.full(nodes, -1, dtype=np.int64)


class Defragmenter:
    """One pool's nodes as arrays, with cached scores."""

    def __init__(self, pool: PackableNodes) -> None:
        self.pool = pool
        self.kinds: tuple[Kind, ...] = ()
        self.machines: object = None
        self.touched: set[str] = set()

    def touch(self, name: str) -> None:
        """Marks a node as changed."""
        self.touched.add(name)

    def study(self, waiting: Mapping[PodRequirements, int]) -> None:
        """Counts which requests are typical, running and pending. Once per cycle."""
        self._catch_up()
        counts = Counter(self.held)
        counts.update(waiting)
        kinds = typical(counts)
        if kinds != self.kinds:
            self.kinds = kinds
            self._forget()

    def offers(
        self, need: PodRequirements, among: Iterable[str] | None = None
    ) -> Iterator[PackingCandidate]:
        """Places with room for the pod, best first, on the nodes named `among` (None: all).

        The caller checks labels, taints and affinity.
        """
        self._catch_up()
        scores = self._scores(need)
        ranked = scores.score.copy()
        if among is not None:
            elsewhere = np.ones(len(ranked), dtype=np.bool_)
            elsewhere[[self.index[name] for name in among]] = False
            ranked[elsewhere] = NEVER
        for _ in range(len(ranked)):
            best = int(ranked.argmin())
            if ranked[best] == NEVER:
                return
            ranked[best] = NEVER
            device = int(scores.device[best])
            yield PackingCandidate(self.nodes[best], None if device < 0 else device)

    # -- nodes as arrays

    def _catch_up(self) -> None:
        if self.machines is not self.pool.machines:
            self._load()
        for name in self.touched:
            self._read(self.index[name])
        self.touched.clear()

    def _load(self) -> None:
        """Rebuilds the arrays for a new set of nodes."""
        self.machines = self.pool.machines
        self.nodes = [self.pool.nodes[name] for name in sorted(self.pool.nodes)]
        self.index = {node.name: row for row, node in enumerate(self.nodes)}
        count, devices = len(self.nodes), max((node.node.gpus for node in self.nodes), default=0)
        self.later: Ints = np.full((count, devices), -1, dtype=np.int64)
        """MiB free per device after leaving pods are gone, the fullest device first; -1: no device.
        """
        self.now: Ints = self.later.copy()
        self.device: Ints = np.zeros((count, devices), dtype=np.int64)
        """The device's index on its node, in the order of `later`."""
        self.spare: Ints = np.zeros((count, 3), dtype=np.int64)
        """CPU, memory and pod slots after leaving pods are gone."""
        self.spare_now: Ints = self.spare.copy()
        self.gpus: Ints = np.array([node.node.gpus for node in self.nodes], dtype=np.int64)
        self.stamp: Ints = np.zeros(count, dtype=np.int64)
        self.carried: list[Counter[PodRequirements]] = [Counter() for _ in self.nodes]
        self.held: Counter[PodRequirements] = Counter()
        self.touched = set(self.index)
        self._forget()

    def _read(self, row: int) -> None:
        node = self.nodes[row]
        held, leaving, promised = node.gpu
        capacity = node.capacity
        free = sorted((capacity - held[d] - promised[d], d) for d in node.usable)
        # a device that became unhealthy has left its column
        self.later[row], self.now[row] = -1, -1
        self.later[row, : len(free)] = [max(0, f) for f, _ in free]
        self.device[row, : len(free)] = [d for _, d in free]
        self.now[row, : len(free)] = [
            max(0, capacity - held[d] - max(leaving[d], promised[d])) for _, d in free
        ]
        is_open = node.name in self.pool.bucket_of
        for i, (total, use) in enumerate(
            (
                (node.node.cpu, node.cpu),
                (node.node.memory, node.memory),
                (node.node.max_pods, node.slots),
            )
        ):
            self.spare[row, i] = min(PLENTY, total - use[HELD] - use[PROMISED]) if is_open else -1
            self.spare_now[row, i] = min(
                PLENTY, total - use[HELD] - max(use[LEAVING], use[PROMISED])
            )
        before = self.carried[row]
        self.held.subtract(before)
        self.carried[row] = Counter(node.pods.values())
        self.held.update(self.carried[row])
        for need in before:
            if not self.held[need]:
                del self.held[need]
        self.stamp[row] += 1

    def _forget(self) -> None:
        """Drops all scores, after the kinds or the nodes have changed."""
        self.measure = FragmentationMeasure(self.kinds, self.nodes)
        self.known: dict[PodRequirements, _Scores] = {}

    # -- scores

    def _scores(self, need: PodRequirements) -> _Scores:
        scores = self.known.get(need)
        if scores is None:
            if len(self.known) >= MEMO:
                self.known.clear()
            scores = self.known[need] = _Scores(len(self.nodes))
        changed = np.flatnonzero(scores.seen != self.stamp)
        for start in range(0, len(changed), CHUNK):
            self._score(need, scores, changed[start : start + CHUNK])
        scores.seen[changed] = self.stamp[changed]
        return scores

    def _score(self, need: PodRequirements, scores: _Scores, rows: NDArray[np.intp]) -> None:
        """Scores these nodes for this request; NEVER where it does not fit."""
        wanted = need.whole or need.devices
        asked = np.array([need.cpu, need.ram, 1], dtype=np.int64)
        has_spare = (self.spare[rows] >= asked).all(axis=1)
        has_spare_now = (self.spare_now[rows] >= asked).all(axis=1)
        if wanted == 0:
            loss = self._loss(need, rows, None, None)[:, 0] + np.where(
                self.gpus[rows] > 0, BESIDE_GPUS, 0
            )
            waits, fits = ~has_spare_now, has_spare
        else:
            size: Ints = np.array(
                [need.portion(c) for c in self.measure.capacity[rows].tolist()], dtype=np.int64
            )
            room = self.later[rows] >= size[:, None]
            room_now = room & (self.now[rows] >= size[:, None])
            fits = has_spare & (room.sum(axis=1) >= wanted)
            if wanted > 1 or need.whole:
                waits = ~has_spare_now | (room_now.sum(axis=1) < wanted)
                loss = self._loss(need, rows, size, room & (room.cumsum(axis=1) <= wanted))[:, 0]
            else:
                each = self._loss(need, rows, size, None) + np.where(room_now, 0, LATER)
                each[~room] = NEVER
                best = each.argmin(axis=1)
                lines = np.arange(len(rows))
                scores.device[rows] = self.device[rows][lines, best]
                loss, waits = each[lines, best], ~has_spare_now & room_now[lines, best]
        scores.score[rows] = np.where(fits, loss + np.where(waits, LATER, 0), NEVER)

    def _loss(
        self,
        need: PodRequirements,
        rows: NDArray[np.intp],
        size: Ints | None,
        chosen: NDArray[np.bool_] | None,
    ) -> Ints:
        """[row, choice] the capacity that the pod makes useless: on the devices `chosen`, or (None)
        on each single device as its own choice; without a `size` on none.
        """
        measure, spare = self.measure, self.spare[rows, :2]
        held = measure.on_devices(rows, self.later[rows])
        whole = held.sum(axis=1)
        before = measure.useful(rows, whole[:, None, :], spare)[:, 0]
        left = spare - np.array([need.cpu, need.ram], dtype=np.int64)
        if size is None:
            return measure.loss(
                rows,
                before,
                measure.useful(rows, whole[:, None, :], left),
                np.zeros(len(rows), dtype=np.int64),
            )
        change = measure.on_devices(rows, self.later[rows] - size[:, None]) - held
        if chosen is None:
            after = measure.useful(rows, whole[:, None, :] + change, left)
        else:
            after = measure.useful(
                rows, (whole + (change * chosen[:, :, None]).sum(axis=1))[:, None, :], left
            )
        return measure.loss(rows, before, after, size * (need.whole or need.devices))
