"""What the pure files decide on: one moment of the node, frozen. Amounts are MiB, times are
monotonic ms, GPUs are indexes.

Two places matter for every kernel. `assigned_gpus`: where its lease belongs (placement decides it). `held`:
where its memory is right now. They differ while a kernel is being moved; what it holds outside its
home is nobody's share and goes first.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

__all__ = ["Tenant", "NodeSnapshot"]


@dataclass(frozen=True, slots=True)
class Tenant:
    """One kernel that has a lease, or still holds memory without one.

    `guarantee` and `limit` are per device. `image` is per device ordinal, in host memory.
    `running`: a cell runs (also one that stands still because the kernel is suspended).
    `wants_since`: it asks for its place now: a cell at the gate, a cell that stands still, or a
    lease that moves in; None when it asks for nothing. `transit`: a copy is under way, `out` of or
    `in`to its GPU. `evict`: the scheduler wants the lease back; `gives_up`: its owner gave the
    lease back. `caches`: when an idle kernel's time to drop its caches is over; None: not asked.
    `notice`: the deadline that its owner was told. `stuck`: it was ended long ago and still holds
    its memory: nobody counts on that.
    """

    id: str
    guarantee: int = 0
    limit: int = 0
    assigned_gpus: tuple[int, ...] = ()
    held: Mapping[int, int] = field(default_factory=dict)
    image: tuple[int, ...] = ()
    running: bool = False
    suspended: bool = False
    suspendable: bool = True
    pinned: bool = False
    transit: Literal["out", "in"] | None = None
    wants_since: int | None = None
    evict: bool = False
    gives_up: bool = False
    caches: int | None = None
    has_caches: bool = False
    notice: int | None = None
    notice_ms: int = 30_000
    idle_since: int = 0
    stuck: bool = False

    def holds(self, gpu: int) -> int:
        """Memory on this GPU."""
        return self.held.get(gpu, 0)

    def share(self, gpu: int) -> int:
        """What nobody may take from it on this GPU against its will, while its cell runs."""
        return (
            self.guarantee if gpu in self.assigned_gpus and not (self.evict or self.gives_up) else 0
        )

    def borrowed(self, gpu: int) -> int:
        """What it holds above its share on this GPU."""
        return max(0, self.holds(gpu) - self.share(gpu))

    def need(self, gpu: int) -> int:
        """What must be its own on one of its home GPUs before its cell may run: its share, or more
        when it has more to bring back.
        """
        ordinal = self.assigned_gpus.index(gpu)
        image = self.image[ordinal] if ordinal < len(self.image) else 0
        return max(self.guarantee, self.holds(gpu) + image)

    def claim(self, gpu: int) -> int:
        """What others cannot have on this GPU now: what it holds; its whole share while its cell
        runs; all of its need on its way in.
        """
        if self.transit == "in" and gpu in self.assigned_gpus:
            return max(self.holds(gpu), self.need(gpu))
        if self.running and not self.suspended and gpu in self.assigned_gpus:
            return max(self.holds(gpu), self.share(gpu))
        return self.holds(gpu)

    def is_away(self) -> bool:
        """Whether it holds memory on a GPU that is not its home."""
        return any(mib and gpu not in self.assigned_gpus for gpu, mib in self.held.items())


@dataclass(frozen=True, slots=True)
class NodeSnapshot:
    """The node at one moment: the size of every GPU, and everyone on it. `lagging`: memory per GPU
    that should be free but is not yet; `stuck`: the part of it that nobody counts on any more.
    """

    totals: Mapping[int, int]
    tenants: tuple[Tenant, ...]
    lagging: Mapping[int, int] = field(default_factory=dict)
    stuck: Mapping[int, int] = field(default_factory=dict)

    def of(self, name: str) -> Tenant:
        """The occupant with this id."""
        return next(tenant for tenant in self.tenants if tenant.id == name)
