"""Whether a lease may be applied to a kernel: the workload's user must be the person who registered
the kernel.

Kernel ids are no secrets, so a workload of another user may name the kernel. Two statements of the
kernel's own Jupyter server, which the socket authenticates by its unix user, prove that a lease is
its own: the user's name at the scheduler, and the id of the kernel's workload. The second counts
where the name at the scheduler is not known (a personal token under another name).
"""

from __future__ import annotations

from jupyter_gpushare.messages import LeaseBody

from ..state.kernel_record import KernelRecord

__all__ = ["is_own_lease", "refusal"]


def is_own_lease(kernel: KernelRecord, lease: LeaseBody) -> bool:
    """Whether the lease may be applied now. A kernel that is not registered yet belongs to no user;
    it is checked again when it is.
    """
    registration = kernel.registration
    if not registration.registered or not registration.user or not lease.user:
        return True
    declared = kernel.request_state.workload if kernel.request_state is not None else None
    return lease.user == registration.user or lease.workload == declared


def refusal(lease: LeaseBody, node: str) -> str:
    """For the user of the workload."""
    return (
        f"Refused: kernel {lease.kernel_id} on node {node} was not registered by user "
        f"{lease.user!r}. A workload can use only kernels of its own user."
    )
