"""Whose kernel is whose: as agents report it, and as workloads claim it.

Kernel ids are no secrets (any user of a machine sees them in its process list), so a workload may
name a kernel only if its user owns that kernel. A kernel that no agent has reported belongs to the
first user whose workload names it, until the report arrives.
"""

from __future__ import annotations

from collections.abc import Iterable

from jupyter_gpushare import messages as m

__all__ = ["KernelOwners"]


class KernelOwners:
    """Registered kernels by node, and workloads by kernel."""

    def __init__(self) -> None:
        self._by_node: dict[str, dict[str, str]] = {}
        self._owners: dict[str, str] = {}
        self._workloads: dict[str, dict[str, str]] = {}
        """Kernel -> workload -> user."""

    # -- agents --

    def replace(self, node: str, kernels: Iterable[m.KernelOwner]) -> list[str]:
        """All kernels of a node. Returns the workloads of other users than their owners."""
        self.remove(node, list(self._by_node.get(node, {})))
        return self.add(node, kernels)

    def add(self, node: str, kernels: Iterable[m.KernelOwner]) -> list[str]:
        """Kernels that were registered. Returns the workloads of other users than their owners."""
        known = self._by_node.setdefault(node, {})
        foreign = []
        for kernel in kernels:
            known[kernel.kernel_id] = kernel.user
            if kernel.user:
                self._owners[kernel.kernel_id] = kernel.user
                foreign += self._of_others(kernel.kernel_id, kernel.user)
        return foreign

    def remove(self, node: str, kernel_ids: Iterable[str]) -> None:
        """Kernels that are no longer registered."""
        known = self._by_node.get(node, {})
        for kernel_id in kernel_ids:
            if known.pop(kernel_id, None) is not None:
                self._owners.pop(kernel_id, None)

    def _of_others(self, kernel_id: str, user: str) -> list[str]:
        claims = self._workloads.get(kernel_id, {})
        return [workload for workload, claimant in claims.items() if claimant != user]

    # -- workloads --

    def may_claim(self, kernel_id: str, user: str) -> bool:
        """Whether a workload of this user may name the kernel."""
        owner = self._owners.get(kernel_id)
        if owner is not None:
            return owner == user
        return not self._of_others(kernel_id, user)

    def claim(self, kernel_id: str | None, workload: str, user: str) -> None:
        """A workload names the kernel."""
        if kernel_id is not None:
            self._workloads.setdefault(kernel_id, {})[workload] = user

    def release(self, kernel_id: str | None, workload: str) -> None:
        """The workload has ended."""
        if kernel_id is None or kernel_id not in self._workloads:
            return
        self._workloads[kernel_id].pop(workload, None)
        if not self._workloads[kernel_id]:
            del self._workloads[kernel_id]
