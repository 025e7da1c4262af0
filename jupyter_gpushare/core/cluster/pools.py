"""A node pool: its nodes, indexed by what is free on them, and its tree of queues.

Nodes are kept in buckets by (size and number of GPUs, free GPUs, idle GPUs, most room on a shared
GPU), sorted by name inside. A cluster of thousands of equal nodes has a few dozen buckets, and the
best node for a pod is the first name in the best bucket that fits.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Final

from ..model.amounts import GPU, NOTHING, UNLIMITED, Amounts
from ..model.errors import InvalidInput
from ..model.model import DEFAULT_POOL, NodePool, Policy, Quota
from .capacity import EmptyCapacity
from .nodes import NodeState
from .packing import Defragmenter
from .people import PeopleLedger
from .promised_quota import PromisedQuota
from .queues import QueueState
from .trial_budget import TrialBudget
from .versions import VersionCounter

__all__ = ["BucketKey", "PoolState", "QueueSpec", "queue_specs"]

BucketKey = tuple[int, int, int, int, int, int]
"""(MiB of a GPU, GPUs, room, idle, shared_later, shared_now) of a node."""
UNBOUNDED: Final = Quota(Amounts(UNLIMITED, UNLIMITED, UNLIMITED))
DRAINING: Final = Quota(weight=NOTHING)
"""Rules of a project that the policy does not know (any more): it is entitled to nothing."""


@dataclass(frozen=True, slots=True)
class QueueSpec:
    """One project or department of the policy."""

    name: str
    kind: str
    parent: str | None
    created: int = 0
    rules: Mapping[str, Quota] = field(default_factory=dict)
    default: Quota = Quota()

    def in_pool(self, pool: str) -> Quota:
        return self.rules.get(pool, self.default)


def queue_specs(policy: Policy) -> dict[str, QueueSpec]:
    """Every queue by name. Without departments, projects are in an unlimited department `default`.

    Raises `InvalidInput` for a duplicate name, an unknown parent, or departments that contain
    themselves.
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
        raise InvalidInput(f"duplicate name {spec.name} ({spec.kind})", field=f"{spec.kind}s")
    specs[spec.name] = spec


def _check_tree(specs: dict[str, QueueSpec]) -> None:
    for spec in specs.values():
        seen, at = {spec.name}, spec.parent
        while at is not None:
            if at not in specs or specs[at].kind != "department":
                message = f"{spec.kind} {spec.name}: there is no department {at!r}"
                raise InvalidInput(message, field=f"{spec.kind}s")
            if at in seen:
                raise InvalidInput(f"department {at} contains itself", field="departments")
            seen.add(at)
            at = specs[at].parent


class PoolState:
    """One node pool.

    `version` changes with everything that happens in it, `freed` when something was released: what
    did not fit at one value of `freed` does not fit while it is unchanged.
    """

    __slots__ = (
        "buckets",
        "candidates_at",
        "excluded",
        "config",
        "defragmenter",
        "estimated_with",
        "fair_stamp",
        "first_candidates",
        "fractions",
        "fractions_ranked",
        "free_fractions",
        "freed",
        "largest",
        "machines",
        "name",
        "nodes",
        "people",
        "promised",
        "queues",
        "reservation",
        "smallest",
        "snapshot",
        "specs",
        "total",
        "trials",
        "version",
        "versions",
        "bucket_of",
    )

    def __init__(
        self,
        config: NodePool,
        specs: dict[str, QueueSpec],
        versions: VersionCounter,
        people: PeopleLedger,
        promised: Mapping[str, PromisedQuota],
    ) -> None:
        self.versions, self.people, self.promised = versions, people, promised
        self.config, self.name, self.specs = config, config.name, specs
        self.nodes: dict[str, NodeState] = {}
        self.buckets: dict[BucketKey, list[str]] = {}
        self.bucket_of: dict[str, BucketKey] = {}
        self.fractions: dict[str, int] = {}
        """Milli-GPU that are free on shared GPUs, per node that is indexed and has some."""
        self.fractions_ranked: list[tuple[int, NodeState]] | None = None
        self.free_fractions = 0
        """Their sum."""
        self.queues: dict[str, QueueState] = {}
        self.defragmenter = Defragmenter(self) if config.defragment else None
        """Chooses places if the option `defragment` is set."""
        self.excluded: frozenset[str] = frozenset()
        self.reservation: tuple[str, tuple[str, ...]] | None = None
        """A workload and the nodes reserved for it (option `reserve_after`)."""
        self.trials = TrialBudget()
        """What consolidation may still search."""
        self.total = NOTHING
        self.machines = EmptyCapacity(())
        """The known nodes by name, as if empty."""
        self.smallest = self.largest = 0
        self.estimated_with = 0
        self.candidates_at = 0
        self.first_candidates: tuple[QueueState, ...] = ()
        """Up to two queues with candidates for eviction, at the version `candidates_at`."""
        self.touch(freed=True)
        self.fair_stamp: tuple[int, ...] = ()
        self.snapshot: object = None
        """What the last cycle kept for its reasons; reused while nothing changes."""

    def queue(self, name: str) -> QueueState:
        """The queue of this name; a name that the policy does not know is draining."""
        known = self.queues.get(name)
        if known is None:
            spec = self.specs.get(name) or QueueSpec(name, "project", None, default=DRAINING)
            parent = None if spec.parent is None else self.queue(spec.parent)
            known = self.queues[name] = QueueState(
                name, spec.kind, parent, spec.in_pool(self.name), spec.created
            )
            known.people = self.people.of(name, self.name)
            known.promised = self.promised.get(name)
        return known

    def has_candidates(self, *, besides: QueueState | None = None) -> bool:
        """Whether any queue, apart from one, has workloads that may be evicted."""
        if self.candidates_at != self.version:
            self.candidates_at = self.version
            with_some = (queue for queue in self.queues.values() if queue.candidates)
            self.first_candidates = tuple(islice(with_some, 2))
        return any(queue is not besides for queue in self.first_candidates)

    def touch(self, *, freed: bool = False) -> None:
        """Gives the pool a new version; `freed`: because something was released."""
        self.version = self.versions.next()
        if freed:
            self.freed = self.version

    def add(self, node: NodeState) -> None:
        self.nodes[node.name] = node
        self.summarize_nodes()
        self.reindex(node)

    def remove(self, node: NodeState) -> None:
        self._unindex(node.name)
        self._count_fractions(node.name, 0)
        del self.nodes[node.name]
        self.summarize_nodes()

    def summarize_nodes(self) -> None:
        """Recomputes capacity totals, after nodes have changed (rare)."""
        self.machines = EmptyCapacity([self.nodes[name].node for name in sorted(self.nodes)])
        ready = [n for n in self.nodes.values() if n.node.ready]
        totals = [n.total for n in ready]
        self.total = Amounts(*(min(UNLIMITED, sum(t[i] for t in totals)) for i in range(3)))
        sizes = [n.capacity for n in ready if n.node.gpus] or [
            n.capacity for n in self.nodes.values() if n.node.gpus
        ]
        self.smallest, self.largest = min(sizes, default=0), max(sizes, default=0)
        self.touch(freed=True)

    def reindex(self, node: NodeState) -> None:
        """Moves a node to the bucket for what it has free now. Nodes that are not ready are in
        none.
        """
        key = (
            node.capacity,
            node.node.gpus,
            node.room,
            node.idle,
            node.shared_later,
            node.shared_now,
        )
        name = node.name
        is_open = node.node.ready and name not in self.excluded
        if self.defragmenter is not None:
            self.defragmenter.touch(name)
        if node.shared_free or name in self.fractions:
            self._count_fractions(name, node.shared_free * GPU // node.capacity if is_open else 0)
        if self.bucket_of.get(name) == key and is_open:
            return
        self._unindex(name)
        if is_open:
            self.bucket_of[name] = key
            bucket = self.buckets.get(key)
            if bucket is None:
                self.buckets[key] = [name]
            else:
                insort(bucket, name)

    def exclude(self, names: Iterable[str]) -> None:
        """Removes these nodes from the buckets, and restores those excluded before."""
        before, self.excluded = self.excluded, frozenset(names)
        for name in before | self.excluded:
            if name in self.nodes:
                self.reindex(self.nodes[name])

    def reserve(self, reservation: tuple[str, tuple[str, ...]] | None) -> None:
        """Sets or clears the reservation, which changes what other workloads can get."""
        self.reservation = reservation
        self.touch(freed=True)

    def _count_fractions(self, name: str, milli_gpu: int) -> None:
        self.fractions_ranked = None
        self.free_fractions += milli_gpu - self.fractions.pop(name, 0)
        if milli_gpu:
            self.fractions[name] = milli_gpu

    def by_free_fractions(self) -> list[tuple[int, NodeState]]:
        """Nodes with free parts of shared GPUs, with all their free milli-GPU, the most first."""
        if self.fractions_ranked is None:
            nodes = [self.nodes[name] for name in self.fractions]
            ranked = [(node.free_now * GPU // node.capacity, node) for node in nodes]
            ranked.sort(key=lambda entry: (-entry[0], entry[1].name))
            self.fractions_ranked = ranked
        return self.fractions_ranked

    def _unindex(self, name: str) -> None:
        key = self.bucket_of.pop(name, None)
        if key is not None:
            bucket = self.buckets[key]
            if len(bucket) == 1:
                del self.buckets[key]
            else:
                del bucket[bisect_left(bucket, name)]

    def ready_nodes(self) -> Iterator[NodeState]:
        """Ready nodes that are not excluded, by name."""
        return (self.nodes[name] for name in sorted(self.bucket_of))
