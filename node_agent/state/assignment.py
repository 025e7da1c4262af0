"""The lease of one kernel and its GPUs. Owner: `reconcile.leases`; `reconcile.memory_mover` notes
moves.
"""

from __future__ import annotations

from dataclasses import dataclass

from jupyter_gpushare.messages import LeaseBody

__all__ = ["GpuAssignment"]


@dataclass(slots=True)
class GpuAssignment:
    """`assigned_gpus`: where the lease belongs. `current_gpus`: where the kernel is attached, which
    stays the old place as long as it holds memory there.
    """

    lease: LeaseBody | None = None
    lease_revoked: bool = False
    """The lease left the scheduler's plan: it is dropped once the kernel holds nothing."""
    assigned_gpus: tuple[int, ...] = ()
    current_gpus: tuple[int, ...] = ()
    attached: bool = False
    entering_since: int | None = None
    """Since when it waits for its GPUs to be made free."""
    entered: bool = False
    """Its GPUs were made free once: all that a kernel without a gate ever gets."""
    bound_gpus: tuple[int, ...] = ()
    """The GPUs that its process has chosen, where the driver cannot move memory to others: only a
    restart changes them.
    """
    parked: bool = False
    """Its lease was released for a turn of others, and its memory stays until the room is needed.
    """
    generation: int = 0
    """Counts attachments and moves."""

    @property
    def active_lease(self) -> LeaseBody | None:
        """The lease, unless it was revoked."""
        return None if self.lease_revoked else self.lease

    @property
    def evicted(self) -> bool:
        """Whether the scheduler wants the lease back."""
        return self.lease is not None and self.lease.wanted == "evict"

    @property
    def gpus(self) -> tuple[int, ...]:
        """Where it is, else where it belongs."""
        return self.current_gpus or self.assigned_gpus

    @property
    def guaranteed_mib(self) -> int:
        """Guaranteed memory over all assigned GPUs."""
        return self.lease.request_mib * max(1, len(self.assigned_gpus)) if self.lease else 0

    @property
    def must_change_gpus(self) -> bool:
        """Whether its process is bound to GPUs that it is no longer assigned to."""
        changed = set(self.bound_gpus) != set(self.assigned_gpus)
        return bool(self.bound_gpus and self.assigned_gpus) and changed

    def accept(self, lease: LeaseBody) -> None:
        """A new or changed lease."""
        self.lease, self.lease_revoked, self.parked = lease, False, False

    def attach(self) -> None:
        """The kernel may use its GPUs."""
        self.attached, self.entering_since = True, None
        self.current_gpus = self.assigned_gpus
        self.generation += 1

    def arrive(self) -> None:
        """Its memory has left the old GPUs: it is on the assigned ones now."""
        self.current_gpus = self.assigned_gpus
        self.generation += 1

    def admitted(self) -> None:
        """Its GPUs have been made free."""
        self.entering_since, self.entered = None, True

    def process_exited(self) -> None:
        """A new process has to be attached anew."""
        self.attached, self.entering_since = False, None

    def process_started(self) -> None:
        """A new process has chosen no GPUs yet."""
        self.process_exited()
        self.entered, self.bound_gpus = False, ()

    def without_lease(self) -> GpuAssignment:
        """The state after the lease was dropped."""
        return GpuAssignment(bound_gpus=self.bound_gpus, generation=self.generation)

    def parks(self) -> GpuAssignment:
        """The state after the lease was released for a turn of others."""
        return GpuAssignment(bound_gpus=self.bound_gpus, generation=self.generation, parked=True)
