"""What the policy decides on: one moment of the node, frozen. Amounts are MiB, times are monotonic
ms, GPUs are indexes.

Two places matter for every kernel: the GPUs that its lease is assigned to, and the GPUs where it
holds memory now. They differ while a kernel is being moved; memory on GPUs that it is not assigned
to belongs to no share and is reclaimed first.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

__all__ = ["NodeSnapshot", "Tenant"]


@dataclass(frozen=True, slots=True)
class Tenant:
    """One kernel that has a lease, or still holds memory without one."""

    id: str
    guarantee: int = 0
    """Per device, as `limit`."""
    limit: int = 0
    assigned_gpus: tuple[int, ...] = ()
    held: Mapping[int, int] = field(default_factory=dict)
    """Memory per GPU."""
    image: tuple[int, ...] = ()
    """Saved in host memory, per device ordinal."""
    running: bool = False
    """A cell runs, also one that waits in the driver because the memory is saved."""
    suspended: bool = False
    suspendable: bool = True
    pinned: bool = False
    transit: Literal["out", "in"] | None = None
    """A copy is in progress: `out` of its GPUs, or `in`."""
    wants_since: int | None = None
    """Since when it asks for its GPUs: a cell at the gate, a cell that waits in the driver, or a
    lease that moves in; None: it does not.
    """
    evict: bool = False
    """The scheduler wants the lease back."""
    lossless: bool = False
    """With `evict`: its process is not killed."""
    gives_up: bool = False
    """Its user returned the lease."""
    caches: int | None = None
    """Until when it may drop its caches; None: it was not asked to."""
    has_caches: bool = False
    notice: int | None = None
    """The deadline that its user was notified of."""
    notice_ms: int = 30_000
    idle_since: int = 0
    user: str = ""
    """"": not known."""
    resident_until: int = 0
    """Until when its user's other kernels cannot take memory from it to use more than their share.
    """
    stuck: bool = False
    """It was ended long ago and still holds its memory: nothing counts on that memory."""

    def is_leaving(self) -> bool:
        """Whether its lease is being given back."""
        return self.evict or self.gives_up

    def needs_notice(self) -> bool:
        """Whether memory may be taken from it only after a notice."""
        return (self.running and not self.suspended) or self.pinned or not self.suspendable

    def holds(self, gpu: int) -> int:
        """Memory on this GPU."""
        return self.held.get(gpu, 0)

    def share(self, gpu: int) -> int:
        """Memory on this GPU that cannot be taken from it while its cell runs."""
        return self.guarantee if gpu in self.assigned_gpus and not self.is_leaving() else 0

    def borrowed(self, gpu: int) -> int:
        """Memory above its share on this GPU."""
        return max(0, self.holds(gpu) - self.share(gpu))

    def need(self, gpu: int) -> int:
        """Memory that it must have on one of its assigned GPUs before its cell may run: its share,
        or more when it has more to restore.
        """
        ordinal = self.assigned_gpus.index(gpu)
        image = self.image[ordinal] if ordinal < len(self.image) else 0
        return max(self.guarantee, self.holds(gpu) + image)

    def claim(self, gpu: int) -> int:
        """Memory on this GPU that others cannot have now: what it holds; its whole share while its
        cell runs; all of its need while it is being restored.
        """
        if self.transit == "in" and gpu in self.assigned_gpus:
            return max(self.holds(gpu), self.need(gpu))
        if self.running and not self.suspended and gpu in self.assigned_gpus:
            return max(self.holds(gpu), self.share(gpu))
        return self.holds(gpu)

    def yields_to(self, other: Tenant, gpu: int, now: int) -> bool:
        """Whether memory that it borrowed can be reclaimed for the other one now."""
        is_protected = now < self.resident_until and bool(self.user) and self.user == other.user
        return not is_protected or other.need(gpu) <= other.guarantee

    def is_away(self) -> bool:
        """Whether it holds memory on a GPU that it is not assigned to."""
        return any(mib and gpu not in self.assigned_gpus for gpu, mib in self.held.items())


@dataclass(frozen=True, slots=True)
class NodeSnapshot:
    """The node at one moment: the size of every GPU, and all tenants. `lagging`: memory per GPU
    that should be free but is not yet; `stuck`: the part of it that nothing counts on any more.
    """

    totals: Mapping[int, int]
    tenants: tuple[Tenant, ...]
    lagging: Mapping[int, int] = field(default_factory=dict)
    stuck: Mapping[int, int] = field(default_factory=dict)

    def tenant(self, name: str) -> Tenant:
        """The tenant with this id."""
        return next(one for one in self.tenants if one.id == name)
