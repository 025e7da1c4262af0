"""Recognizes requests that can never start: they would not even start in an empty cluster.

The same cycle decides as for every request, on a cluster with all known nodes, ready and without
workloads. What only waits until others end starts there. Requests are not judged by nodes that the
scheduler has never seen.
"""

from __future__ import annotations

from dataclasses import replace
from hashlib import sha256
from typing import Final

from msgspec.structs import replace as changed

from jupyter_gpushare import messages as m
from jupyter_gpushare.core.cluster.cluster import Cluster
from jupyter_gpushare.core.cycle.cycle import what_if
from jupyter_gpushare.core.model.errors import Conflict
from jupyter_gpushare.core.model.events import NodeJoined, NodeLeft
from jupyter_gpushare.core.model.model import Node, Policy, Workload
from jupyter_gpushare.core.model.reason import Reason, ReasonCode, counted

from ..state.admission import AdmittedRequest, pools_tried
from ..state.unit_of_work import UnitOfWork

__all__ = ["Feasibility", "Impossible"]

PERMANENT: Final = frozenset(
    {
        ReasonCode.NEVER_FITS,
        ReasonCode.OVER_LIMIT,
        ReasonCode.OVER_PERSON_LIMIT,
        ReasonCode.NON_PREEMPTIBLE_OVER_QUOTA,
    }
)
BOUNDS: Final = {ReasonCode.OVER_LIMIT: "limit", ReasonCode.NON_PREEMPTIBLE_OVER_QUOTA: "quota"}
LARGEST_CACHE: Final = 2_000
"""Remembered results."""


class Impossible(Conflict):
    """Raised when a request can never start; its code is that of the reason."""

    def __init__(self, reason: Reason, field: str) -> None:
        super().__init__(reason.message, field=field)
        self.code = str(reason.code)


class Feasibility:
    """Of the policy and nodes of one unit of work."""

    def __init__(self, unit_of_work: UnitOfWork) -> None:
        self._unit_of_work = unit_of_work
        self._policy: Policy | None = None
        self._version = -1
        self._empty = Cluster()
        self._nodes: dict[str, Node] = {}
        self._cache: dict[object, Reason | None] = {}

    def check(self, admitted: AdmittedRequest) -> None:
        """Raises Impossible, unless the request waits for other nodes or limits
        (`queue_anyway`).
        """
        if admitted.request.queue_anyway:
            return
        reason = self.impossible(admitted)
        if reason is not None:
            pod = admitted.request.pods[0]
            raise Impossible(reason, "gpu" if pod.gpu_memory is None else "gpu_memory")

    def impossible(self, admitted: AdmittedRequest) -> Reason | None:
        """Why it can never start; None: it can."""
        self._update()
        workload = admitted.workload
        key = _key(admitted)
        if key not in self._cache:
            if len(self._cache) >= LARGEST_CACHE:
                self._cache.clear()
            self._cache[key] = self._reason(workload)
        return self._cache[key]

    def _reason(self, workload: Workload) -> Reason | None:
        if self._names_unknown_nodes(workload):
            return None
        found = what_if(self._empty, workload, self._unit_of_work.clock())
        if found.starts_now or found.reason is None or found.reason.code not in PERMANENT:
            return None
        if found.reason.code == ReasonCode.NEVER_FITS and self._has_empty_pool(workload):
            return None
        return replace(found.reason, message=_text(found.reason), helps=())

    def _names_unknown_nodes(self, workload: Workload) -> bool:
        return any(name not in self._nodes for pod in workload.pods for name in pod.node_affinity)

    def _has_empty_pool(self, workload: Workload) -> bool:
        """Whether it may use a pool of which no node is known yet."""
        known = {node.pool for node in self._nodes.values()}
        return not known.issuperset(pools_tried(workload, self._unit_of_work.loaded.policy))

    def _update(self) -> None:
        """Takes over changes of policy and nodes."""
        policy, version = self._unit_of_work.loaded.policy, self._unit_of_work.nodes.version
        if policy is self._policy and version == self._version:
            return
        if policy is not self._policy:
            self._empty, self._nodes, self._policy = Cluster(policy), {}, policy
            self._cache.clear()
        self._version = version
        nodes = {
            name: replace(state.node, ready=True, reasons=(), unhealthy=frozenset())
            for name, state in self._unit_of_work.cluster.nodes.items()
        }
        for name in self._nodes.keys() - nodes.keys():
            self._empty.apply(NodeLeft(name))
        new = [node for name, node in nodes.items() if self._nodes.get(name) != node]
        for node in new:
            self._empty.apply(NodeJoined(node))
        if new or len(nodes) != len(self._nodes):
            self._cache.clear()
        self._nodes = nodes


def _text(reason: Reason) -> str:
    """The message of a reason in an empty cluster, without what is in use or free there."""
    requested = reason.numbers.get("requested", 0)
    if reason.code == ReasonCode.OVER_PERSON_LIMIT:
        limit = counted(reason.numbers.get("limit", 0), "GPU")
        return (
            f"Cannot start: {counted(requested, 'GPU')} requested, but one person may hold at most"
            f" {limit} in this project."
        )
    for code, name in BOUNDS.items():
        bound = reason.numbers.get(name)
        if reason.code == code and bound is not None and requested > bound:
            return (
                f"Cannot start: {counted(requested, 'GPU')} requested, but the {name} of its "
                f"project or department is {counted(bound, 'GPU')}."
            )
    return reason.message


def _key(admitted: AdmittedRequest) -> object:
    """The same for requests that differ in nothing that matters here. A digest, because labels and
    node names may be long.
    """
    workload = admitted.workload
    request = changed(
        admitted.request, id="", name="", kernel_id=None, user=None, command=None, replaces=None
    )
    digest = sha256(m.encode(request)).digest()
    return digest, workload.project, workload.priority, workload.preemptible, workload.user
