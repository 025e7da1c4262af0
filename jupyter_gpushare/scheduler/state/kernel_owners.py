"""Whose kernel is whose: as agents report it, and as workloads claim it.

Kernel ids are no secrets (any user of a machine sees them in its process list), so a workload may
name a kernel only if its user owns that kernel. A kernel that no agent has reported belongs to the
first user whose workload names it, until the report arrives.

Any user may register an id that they have seen again, on a node of their own. So a report decides
about workloads that name its node (as those of kernels do), and a kernel that several nodes report
belongs to each of their users.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import NamedTuple

from jupyter_gpushare import messages as m

__all__ = ["KernelOwners"]


def _kernel_nodes(request: m.WorkloadRequest) -> frozenset[str]:
    """Where the kernel of a workload may be; empty: on any node."""
    if not all(pod.nodes for pod in request.pods):
        return frozenset()
    return frozenset(node for pod in request.pods for node in pod.nodes)


class _Claim(NamedTuple):
    """Of a workload."""

    user: str
    nodes: frozenset[str]


class KernelOwners:
    """Registered kernels by node, and workloads by kernel."""

    def __init__(self) -> None:
        self._by_node: dict[str, dict[str, str]] = {}
        self._owners: dict[str, dict[str, str]] = {}
        """Kernel -> node -> user."""
        self._claims: dict[str, dict[str, _Claim]] = {}
        """Kernel -> workload -> claim."""

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
            self._owners.setdefault(kernel.kernel_id, {})[node] = kernel.user
            foreign += self._foreign(kernel.kernel_id, node)
        return foreign

    def remove(self, node: str, kernel_ids: Iterable[str]) -> None:
        """Kernels that are no longer registered."""
        known = self._by_node.get(node, {})
        for kernel_id in kernel_ids:
            if known.pop(kernel_id, None) is not None:
                owners = self._owners[kernel_id]
                owners.pop(node, None)
                if not owners:
                    del self._owners[kernel_id]

    def is_on(self, kernel_id: str | None, node: str) -> bool:
        """Whether the kernel is registered with the agent of this node."""
        return kernel_id in self._by_node.get(node, {})

    def _foreign(self, kernel_id: str, node: str) -> list[str]:
        """Workloads that a report of this node refutes. A node that does not know the user ("")
        refutes none.
        """
        refuted = []
        for workload, claim in self._claims.get(kernel_id, {}).items():
            users = self._users(kernel_id, claim.nodes)
            is_concerned = not claim.nodes or node in claim.nodes
            if is_concerned and "" not in users and claim.user not in users:
                refuted.append(workload)
        return refuted

    def _users(self, kernel_id: str, nodes: Collection[str]) -> set[str]:
        """Whose kernel it is according to these nodes, or according to all."""
        owners = self._owners.get(kernel_id, {})
        return {user for node, user in owners.items() if not nodes or node in nodes}

    # -- workloads --

    def may_claim(self, request: m.WorkloadRequest, user: str) -> bool:
        """Whether a workload of this user may name its kernel."""
        if (kernel_id := request.kernel_id) is None:
            return True
        nodes = _kernel_nodes(request)
        users = self._users(kernel_id, nodes) or self._users(kernel_id, ())
        if users - {""}:
            return user in users
        claims = self._claims.get(kernel_id, {})
        return all(claim.user == user for claim in claims.values())

    def claim(self, request: m.WorkloadRequest, user: str) -> None:
        """A workload of this user names its kernel."""
        if request.kernel_id is not None:
            claim = _Claim(user, _kernel_nodes(request))
            self._claims.setdefault(request.kernel_id, {})[request.id] = claim

    def release(self, kernel_id: str | None, workload: str) -> None:
        """The workload has ended."""
        if kernel_id is None or kernel_id not in self._claims:
            return
        self._claims[kernel_id].pop(workload, None)
        if not self._claims[kernel_id]:
            del self._claims[kernel_id]
