"""One workload in the service: its request, leases, reports of its agent, why it is pending; and
how it is displayed.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Literal

from msgspec.structs import replace

from jupyter_gpushare import messages as m
from jupyter_gpushare.core.cluster.cluster import Cluster
from jupyter_gpushare.core.model.amounts import MILLI
from jupyter_gpushare.core.model.model import Pod, Spot, Workload
from jupyter_gpushare.core.model.reason import Reason
from jupyter_gpushare.core.model.units import gpu_text, memory_text

from ..store.reads import EVENTS_KEPT
from ..store.store import WorkloadOutcome
from .admission import share_of

__all__ = [
    "WorkloadRecord",
    "log_fields",
    "lease_body",
    "ended_view",
    "reason_of",
    "spot_of",
    "state_of",
    "view",
    "request_text",
]


@dataclass(slots=True)
class WorkloadRecord:
    """Mutable; owned by the service. `revision` is that of its last change."""

    request: m.WorkloadRequest
    workload: Workload
    user: str
    leases: dict[str, m.LeaseBody] = field(default_factory=dict)
    """By pod."""
    reports: dict[str, m.LeaseReport] = field(default_factory=dict)
    """By lease id."""
    events: deque[m.Event] = field(default_factory=lambda: deque(maxlen=EVENTS_KEPT))
    reason: Reason | None = None
    position: int | None = None
    trial: tuple[Reason | None, int | None] = None, None
    """Last trial of a workload that is to replace another one: reason and queue position."""
    expected: m.ExpectedWait | None = None
    """The expected wait that was published last."""
    estimate_due: int = 0
    """When (ms) the expected wait is computed again if nothing else changes."""
    revision: int = 0
    started: dict[str, int] = field(default_factory=dict)
    """When each lease was granted (ms), by lease id."""
    pending_since: int | None = None
    """Since when it has been waiting for a GPU (ms); None: it has one, or does not ask for one."""
    changed_at: int | None = None
    """When its kernel began or stopped to compute, or its state on the node changed (ms)."""
    is_held: bool = False
    """Its GPU was released while it was idle: it is held until its owner works again."""
    exits: dict[str, int] = field(default_factory=dict)
    """Exit codes of its commands that have ended, by pod."""
    next_time_check: int = 0
    """Time limits need not be checked before this time (ms)."""
    announced_end: int | None = None
    """The end of its waiting (ms) that was announced last."""
    ending: str = ""
    """Why it ends when its last lease is released; "": it becomes pending again."""
    pods: dict[str, tuple[m.PodRequest, Pod]] = field(default_factory=dict)
    """By name; see `pod`."""
    lease_pods: dict[str, str] = field(default_factory=dict)
    """Pods by id of their lease; see `find_lease`."""

    @property
    def id(self) -> str:
        return self.workload.id

    @property
    def project(self) -> str:
        return self.workload.project

    @property
    def kernel_id(self) -> str | None:
        return self.request.kernel_id

    def pod(self, name: str) -> tuple[m.PodRequest, Pod]:
        """The pod with this name, which must exist: as requested, and as scheduled."""
        if len(self.workload.pods) != len(self.pods):
            pairs = zip(self.request.pods, self.workload.pods, strict=True)
            self.pods = {spec.name: (asked, spec) for asked, spec in pairs}
        return self.pods[name]

    def lease(self, id_: str) -> m.LeaseBody:
        """The lease with this id, which must exist."""
        lease = self.find_lease(id_)
        assert lease is not None
        return lease

    def find_lease(self, id_: str) -> m.LeaseBody | None:
        """The lease with this id. Indexed: every report of an agent names all leases."""
        lease = self.leases.get(self.lease_pods.get(id_, ""))
        if lease is None or lease.id != id_:
            self.lease_pods = {lease.id: pod for pod, lease in self.leases.items()}
            lease = self.leases.get(self.lease_pods.get(id_, ""))
        return lease


def log_fields(record: WorkloadRecord) -> dict[str, str]:
    """Extra fields of log lines about it."""
    whose = {"workload": record.id, "project": record.project, "user": record.user}
    if len(record.leases) == 1:
        (lease,) = record.leases.values()
        whose |= {"lease": lease.id, "node": lease.node}
    return whose


def state_of(
    record: WorkloadRecord, cluster: Cluster
) -> Literal["pending", "running", "partial", "ended"]:
    return _state([cluster.state(record.id, pod.name) for pod in record.workload.pods])


def spot_of(lease: m.LeaseBody) -> Spot:
    return Spot(lease.node, tuple(lease.planned_gpus), lease.pool)


def reason_of(reason: Reason | None) -> m.ReasonBody | None:
    """A reason as sent to clients."""
    if reason is None:
        return None
    helps = [m.HelpBody(change=h.change, to=h.to, message=h.message) for h in reason.helps]
    return m.ReasonBody(
        code=str(reason.code), message=reason.message, numbers=dict(reason.numbers), helps=helps
    )


def view(record: WorkloadRecord, cluster: Cluster) -> m.WorkloadView:
    """The workload as its owner sees it."""
    request, limit = share_of(record.request.pods[0])
    pods = [_pod_view(record, cluster, pod.name) for pod in record.workload.pods]
    return m.WorkloadView(
        id=record.id,
        name=record.request.name,
        kernel_id=record.kernel_id,
        user=record.user,
        project=record.project,
        priority=record.workload.priority,
        preemptible=record.workload.preemptible,
        node_pools=list(record.workload.node_pools),
        created=m.stamp(record.workload.created),
        state=_state([pod.state for pod in pods]),
        request=request,
        limit=limit,
        pods=pods,
        reason=reason_of(record.reason),
        queue_position=record.position,
        expected_wait=record.expected,
        revision=record.revision,
        replaces=record.request.replaces,
        command=None if record.request.command is None else list(record.request.command.argv),
    )


def _pod_view(record: WorkloadRecord, cluster: Cluster, name: str) -> m.PodView:
    lease = record.leases.get(name)
    shown = None if lease is None else replace(lease, command=None)  # its environment is private
    report = record.reports.get(lease.id) if lease else None
    return m.PodView(
        name=name,
        state=cluster.state(record.id, name),
        lease=shown,
        report=report,
        exit_code=record.exits.get(name),
    )


def ended_view(over: WorkloadOutcome) -> m.WorkloadView:
    """Batch work that has ended, as its owner sees it."""
    request = over.row.request
    asked, limit = share_of(request.pods[0])
    assert request.command is not None
    codes = list(over.exits.values())
    return m.WorkloadView(
        id=request.id,
        name=request.name,
        kernel_id=None,
        user=over.row.user,
        project=over.row.project,
        priority=over.row.priority,
        preemptible=over.row.preemptible,
        node_pools=list(request.node_pools),
        created=m.stamp(over.row.created_ms),
        state="ended",
        request=asked,
        limit=limit,
        pods=[_over_pod(pod.name, over.exits.get(pod.name)) for pod in request.pods],
        command=list(request.command.argv),
        exit_code=next((code for code in codes if code), 0 if codes else None),
        message=over.message,
    )


def _over_pod(name: str, exit_code: int | None) -> m.PodView:
    return m.PodView(
        name=name, state="succeeded" if exit_code == 0 else "failed", exit_code=exit_code
    )


def _state(pods: list[str]) -> Literal["pending", "running", "partial", "ended"]:
    """`pending` until a pod has a place, `partial` while only some have."""
    placed = sum(state in ("running", "bound", "releasing") for state in pods)
    over = sum(state in ("succeeded", "failed") for state in pods)
    if over == len(pods):
        return "ended"
    return "pending" if placed == 0 else "running" if placed + over == len(pods) else "partial"


def lease_body(
    record: WorkloadRecord,
    pod: str,
    *,
    id_: str,
    node: m.NodeReport,
    pool: str,
    devices: tuple[int, ...],
    rules: m.LeaseRules,
) -> m.LeaseBody:
    """The lease of a pod that was just bound to these planned GPUs. MiB per device; a fraction is
    truncated (docs/explanation/scheduling.md, Amounts).
    """
    asked, spec = record.pod(pod)
    total = min((d.total_mib for d in node.devices), default=0)
    request, limit = share_of(asked)
    whole = bool(spec.gpu) and spec.gpu % MILLI == 0
    guarantee = spec.gpu_memory or (total if whole else spec.gpu * total // MILLI)
    ceiling = (
        total
        if whole
        else max(guarantee, round((limit.gpu or 0) / asked.gpu_devices * MILLI) * total // MILLI)
    )
    return m.LeaseBody(
        id=id_,
        workload=record.id,
        pod=pod,
        kernel_id=record.kernel_id,
        name=record.request.name,
        user=record.user,
        project=record.project,
        node=node.name,
        pool=pool,
        planned_gpus=list(devices),
        request_mib=guarantee,
        limit_mib=ceiling,
        request=request,
        limit=limit,
        rules=rules,
        command=record.request.command,
    )


def request_text(record: WorkloadRecord, number: int | None = None) -> str:
    """The request in words: `0.5 GPU`. `number`: of so many of its pods; None: of all."""
    pods, first = record.workload.pods, record.workload.pods[0]
    if first.gpu_memory is not None:
        each = f"{memory_text(first.gpu_memory)} of GPU memory"
    elif first.gpu:
        gpu = first.gpu * first.gpu_devices
        each = f"{gpu_text(gpu)} GPU{'s' if gpu > MILLI else ''}"
    else:
        each = "no GPU"
    if len(pods) == 1:
        return each
    number = len(pods) if number is None else number
    return f"{number} {'pod' if number == 1 else 'pods'} of {each}"
