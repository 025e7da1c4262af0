"""What a node pool has: its nodes, found by what is free on them, and its tree of queues. Decides
nothing.

Nodes are kept in buckets by (size and number of GPUs, free GPUs, idle GPUs, most room on a shared
GPU), names sorted inside. A cluster of thousands of alike nodes has a few dozen buckets, and the
best node for a pod is the first name in the best bucket that fits.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import count
from typing import Final

from ..model.amounts import NOTHING, UNLIMITED, Amounts
from ..model.errors import InvalidInput
from ..model.model import DEFAULT_POOL, NodePool, Policy, Quota
from .capacity import EmptyCapacity
from .nodes import NodeState
from .packing import Defragmenter
from .queues import QueueState

__all__ = ["BucketKey", "PoolState", "QueueSpec", "queue_specs"]

BucketKey = tuple[int, int, int, int, int, int]
"""(MiB of a GPU, GPUs, room, idle, shared_later, shared_now) of a node."""
UNBOUNDED: Final = Quota(Amounts(UNLIMITED, UNLIMITED, UNLIMITED))
DRAINING: Final = Quota(weight=NOTHING)
"""A project that is gone from the policy: what still runs there is entitled to nothing."""

_ticks = count(1)


def tick() -> int:
    """A number that no other state of any pool has had."""
    return next(_ticks)


@dataclass(frozen=True, slots=True)
class QueueSpec:
    """One project or department as the policy has it."""

    name: str
    kind: str
    parent: str | None
    created: int = 0
    rules: Mapping[str, Quota] = field(default_factory=dict)
    default: Quota = Quota()

    def in_pool(self, pool: str) -> Quota:
        return self.rules.get(pool, self.default)


def queue_specs(policy: Policy) -> dict[str, QueueSpec]:
    """Every queue by name. Without departments, projects stand under an unlimited department
    `default`.

    Raises `InvalidInput` for a name used twice, a parent that does not exist, and departments that
    contain themselves.
    """
    specs: dict[str, QueueSpec] = {}
    implicit = None
    if not policy.departments and all(p.name != DEFAULT_POOL for p in policy.projects):
        implicit = DEFAULT_POOL
        specs[implicit] = QueueSpec(implicit, "department", None, default=UNBOUNDED)
    for department in policy.departments:
        _add(
            specs,
            QueueSpec(
                department.name,
                "department",
                department.parent,
                department.created,
                department.pools,
            ),
        )
    for project in policy.projects:
        parent = project.department or implicit
        _add(specs, QueueSpec(project.name, "project", parent, project.created, project.pools))
    _check_tree(specs)
    return specs


def _add(specs: dict[str, QueueSpec], spec: QueueSpec) -> None:
    if spec.name in specs:
        raise InvalidInput(
            f"{spec.kind} {spec.name} has a name that is taken", field=f"{spec.kind}s"
        )
    specs[spec.name] = spec


def _check_tree(specs: dict[str, QueueSpec]) -> None:
    for spec in specs.values():
        seen, at = {spec.name}, spec.parent
        while at is not None:
            if at not in specs or specs[at].kind != "department":
                message = f"{spec.kind} {spec.name} is under {at!r}, which is no department"
                raise InvalidInput(message, field=f"{spec.kind}s")
            if at in seen:
                raise InvalidInput(f"department {at} contains itself", field="departments")
            seen.add(at)
            at = specs[at].parent


class PoolState:
    """One node pool. `version` changes with everything that happens in it, `freed` when something
    was given back: what did not fit at a `freed` does not fit while it stays the same.
    """

    __slots__ = (
        "buckets",
        "closed",
        "config",
        "defragmenter",
        "estimated_with",
        "fair_stamp",
        "freed",
        "largest",
        "machines",
        "name",
        "nodes",
        "queues",
        "reservation",
        "smallest",
        "specs",
        "total",
        "version",
        "where",
    )

    def __init__(self, config: NodePool, specs: dict[str, QueueSpec]) -> None:
        self.config, self.name, self.specs = config, config.name, specs
        self.nodes: dict[str, NodeState] = {}
        self.buckets: dict[BucketKey, list[str]] = {}
        self.where: dict[str, BucketKey] = {}
        self.queues: dict[str, QueueState] = {}
        self.defragmenter = Defragmenter(self) if config.defragment else None
        """Chooses places in pools where the option `defragment` asks for it."""
        self.closed: frozenset[str] = frozenset()
        self.reservation: tuple[str, tuple[str, ...]] | None = None
        """A starving workload and the nodes that are kept free for it (option `reserve_after`)."""
        self.total = NOTHING
        self.machines = EmptyCapacity(())
        """What is known of every node, by name."""
        self.smallest = self.largest = 0
        self.estimated_with = 0
        self.version = self.freed = tick()
        self.fair_stamp: tuple[int, ...] = ()

    def queue(self, name: str) -> QueueState:
        """The queue of this name here; one that the policy does not know is draining."""
        known = self.queues.get(name)
        if known is None:
            spec = self.specs.get(name) or QueueSpec(name, "project", None, default=DRAINING)
            parent = None if spec.parent is None else self.queue(spec.parent)
            known = self.queues[name] = QueueState(
                name, spec.kind, parent, spec.in_pool(self.name), spec.created
            )
        return known

    def add(self, node: NodeState) -> None:
        self.nodes[node.name] = node
        self.survey()
        self.place(node)

    def remove(self, node: NodeState) -> None:
        self._unlist(node.name)
        del self.nodes[node.name]
        self.survey()

    def survey(self) -> None:
        """Sums up what the ready nodes have. Called when nodes change, which is rare."""
        self.machines = EmptyCapacity([self.nodes[name].node for name in sorted(self.nodes)])
        ready = [n for n in self.nodes.values() if n.node.ready]
        totals = [n.total for n in ready]
        self.total = Amounts(*(min(UNLIMITED, sum(t[i] for t in totals)) for i in range(3)))
        sizes = [n.capacity for n in ready if n.node.gpus] or [
            n.capacity for n in self.nodes.values() if n.node.gpus
        ]
        self.smallest, self.largest = min(sizes, default=0), max(sizes, default=0)
        self.version = self.freed = tick()

    def place(self, node: NodeState) -> None:
        """Files a node under what it has free now. Nodes that are not ready are in no bucket."""
        key = (
            node.capacity,
            node.node.gpus,
            node.room,
            node.idle,
            node.shared_later,
            node.shared_now,
        )
        name = node.name
        is_open = node.node.ready and name not in self.closed
        if self.defragmenter is not None:
            self.defragmenter.touch(name)
        if self.where.get(name) == key and is_open:
            return
        self._unlist(name)
        if is_open:
            self.where[name] = key
            bucket = self.buckets.get(key)
            if bucket is None:
                self.buckets[key] = [name]
            else:
                insort(bucket, name)

    def close(self, names: Iterable[str]) -> None:
        """Takes these nodes out of the buckets, and puts back those that were closed before."""
        before, self.closed = self.closed, frozenset(names)
        for name in before | self.closed:
            if name in self.nodes:
                self.place(self.nodes[name])

    def reserve(self, reservation: tuple[str, tuple[str, ...]] | None) -> None:
        """Keeps nodes for somebody, or for nobody any more; either changes what others can have."""
        self.reservation = reservation
        self.version = self.freed = tick()

    def _unlist(self, name: str) -> None:
        key = self.where.pop(name, None)
        if key is not None:
            bucket = self.buckets[key]
            if len(bucket) == 1:
                del self.buckets[key]
            else:
                del bucket[bisect_left(bucket, name)]

    def ready_nodes(self) -> Iterator[NodeState]:
        """By name."""
        return (self.nodes[name] for name in sorted(self.where))

    def leaves(self) -> list[QueueState]:
        """Queues that hold workloads, by name."""
        return [queue for _, queue in sorted(self.queues.items()) if queue.kind == "project"]
