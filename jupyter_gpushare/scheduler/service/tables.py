"""Rows of the tables: queues, nodes, node pools, projects, pending workloads."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence

from jupyter_gpushare import messages as m
from jupyter_gpushare.core.cluster.cluster import Cluster
from jupyter_gpushare.core.cluster.nodes import NodeState
from jupyter_gpushare.core.model.amounts import MILLI, is_unlimited
from jupyter_gpushare.core.model.decisions import QueueShare
from jupyter_gpushare.core.model.model import NodePool, Policy
from jupyter_gpushare.core.model.node_conditions import NodeCondition
from jupyter_gpushare.core.model.reason import Reason

from ..auth.authorization import Authorization
from ..auth.identity import Identity
from ..state.admission import pools_tried, share_of
from ..state.nodes import NodeRegistry
from ..state.workload_records import WorkloadRecord

__all__ = ["node_rows", "pool_rows", "project_rows", "queue_rows", "waiting_row"]

_SCALES = {"gpu": MILLI, "cpu": MILLI, "memory": 1}


def queue_rows(queues: Iterable[QueueShare], visible: set[str]) -> list[m.QueueRow]:
    """A row per queue, pool and resource: all departments, and the projects that the caller may
    see.
    """
    rows: list[m.QueueRow] = []
    for queue in queues:
        if queue.kind == "department" or queue.queue in visible:
            rows += [_queue_row(queue, index, name) for index, name in enumerate(_SCALES)]
    return rows


def _queue_row(queue: QueueShare, index: int, resource: str) -> m.QueueRow:
    scale = _SCALES[resource]
    return m.QueueRow(
        queue=queue.queue,
        kind="department" if queue.kind == "department" else "project",
        pool=queue.pool,
        resource=resource,  # type: ignore[arg-type]  # a key of _SCALES
        quota=_amount(queue.quota[index], scale),
        limit=_amount(queue.limit[index], scale),
        fair_share=queue.fair_share[index] / scale,
        allocated=queue.allocated[index] / scale,
        requested=queue.requested[index] / scale,
    )


def _amount(value: int, scale: int) -> float | None:
    return None if is_unlimited(value) else value / scale


def project_rows(
    policy: Policy, queues: Iterable[QueueShare], mine: set[str], visible: set[str]
) -> list[m.ProjectRow]:
    """A row per project and pool."""
    department = {project.name: project.department for project in policy.projects}
    return [
        m.ProjectRow(
            name=q.queue,
            department=department.get(q.queue),
            pool=q.pool,
            member=q.queue in mine,
            gpu_quota=_amount(q.quota.gpu, MILLI),
            gpu_limit=_amount(q.limit.gpu, MILLI),
            gpu_fair_share=q.fair_share.gpu / MILLI,
            gpu_allocated=q.allocated.gpu / MILLI,
            gpu_requested=q.requested.gpu / MILLI,
        )
        for q in queues
        if q.kind == "project" and q.queue in visible
    ]


def pool_rows(
    policy: Policy, cluster: Cluster, records: Mapping[str, WorkloadRecord]
) -> list[m.PoolRow]:
    """A row per node pool; `pending` counts workloads that may use it, by their own list or their
    project's.
    """
    tried = Counter(
        pool
        for record in records.values()
        if record.reason is not None
        for pool in pools_tried(record.workload, policy)
    )
    return [
        _pool_row(
            pool,
            [s for s in cluster.nodes.values() if s.node.pool == pool.name],
            records,
            tried[pool.name],
        )
        for pool in policy.node_pools
    ]


def _pool_row(
    pool: NodePool, nodes: Sequence[NodeState], records: Mapping[str, WorkloadRecord], pending: int
) -> m.PoolRow:
    names = {state.node.name for state in nodes}
    return m.PoolRow(
        name=pool.name,
        nodes=len(nodes),
        gpus=sum(state.node.gpus for state in nodes),
        gpu_allocated=_held(records.values(), names),
        placement_gpu=pool.gpu,
        placement_cpu=pool.cpu,
        workloads_per_gpu=pool.workloads_per_gpu,
        pending=pending,
        status="Ready" if any(state.node.ready for state in nodes) else "Not ready",
        nodes_ready=sum(state.node.ready for state in nodes),
        reasons=_reasons(nodes),
    )


def _reasons(nodes: Sequence[NodeState]) -> list[str]:
    """`2 x agent silent`: each reason with its number of nodes, the most frequent first."""
    tally = Counter(reason for state in nodes for reason in state.node.reasons)
    return [
        f"{count} x {reason}"
        for reason, count in sorted(tally.items(), key=lambda one: (-one[1], one[0]))
    ] or ([] if nodes else ["no nodes"])


def _held(records: Iterable[WorkloadRecord], nodes: set[str]) -> float:
    """Milli-GPU that the leases on these nodes count against quota."""
    return round(
        sum(
            _gpus(lease)
            for record in records
            for lease in record.leases.values()
            if lease.node in nodes
        ),
        3,
    )


def _gpus(lease: m.LeaseBody) -> float:
    if lease.request.gpu is not None:
        return lease.request.gpu
    return (lease.request.gpu_memory_mib or 0) / max(1, lease.limit_mib) * len(lease.planned_gpus)


def node_rows(
    cluster: Cluster,
    registry: NodeRegistry,
    records: Mapping[str, WorkloadRecord],
    sees: Callable[[WorkloadRecord], bool],
) -> list[m.NodeRow]:
    """A row per node with its GPUs. Kernels that the caller may not see are not named."""
    by_node: dict[str, list[tuple[WorkloadRecord, m.LeaseBody]]] = {}
    for record in records.values():
        for lease in record.leases.values():
            by_node.setdefault(lease.node, []).append((record, lease))
    return [
        _node_row(state, registry, by_node.get(name, []), sees)
        for name, state in sorted(cluster.nodes.items())
    ]


def _node_row(
    state: NodeState,
    registry: NodeRegistry,
    held: list[tuple[WorkloadRecord, m.LeaseBody]],
    sees: Callable[[WorkloadRecord], bool],
) -> m.NodeRow:
    node, report = state.node, registry.report(state.node.name)
    measured = {name: getattr(report, name) for name in m.NodeMeasurements.__struct_fields__}
    return m.NodeRow(
        **measured,
        name=node.name,
        pool=node.pool,
        status="Ready" if node.ready else "Not ready",
        reasons=list(node.reasons),
        reason_details=_details(node.name, registry),
        gpus=len(report.devices),
        gpu_allocated=round(sum(_gpus(lease) for _, lease in held), 3),
        cordoned=NodeCondition.SCHEDULING_DISABLED in node.reasons,
        devices=[_device_row(device, held, sees) for device in report.devices],
    )


def _details(node: str, registry: NodeRegistry) -> dict[str, str]:
    platform = registry.platform(node)
    return {} if platform is None else {str(c): text for c, text in platform.conditions.items()}


def _device_row(
    device: m.DeviceReport,
    held: list[tuple[WorkloadRecord, m.LeaseBody]],
    sees: Callable[[WorkloadRecord], bool],
) -> m.DeviceRow:
    """`guaranteed` and `used` are those of kernels on the GPU now. A kernel that is planned here
    and runs elsewhere, or nowhere yet, is named but not added: planned and current GPUs are not
    summed together.
    """
    here, planned, ungated, guaranteed, used, borrowed = [], [], [], 0, 0, 0
    for record, lease in held:
        report = record.reports.get(lease.id)
        name = (
            (lease.kernel_id or lease.workload)
            if sees(record)
            else f"another user in project {record.project}"
        )
        if device.index in lease.planned_gpus:
            planned.append(name)
        if report is None or not report.gpu_uuids:
            continue
        assigned = report.gpu_uuids if report.assigned_uuids is None else report.assigned_uuids
        if device.uuid in assigned and report.gated:
            guaranteed += lease.request_mib
        if device.uuid in report.gpu_uuids:
            here.append(name)
            ungated += [] if report.gated else [name]
            used += report.memory_mib.used // max(1, len(report.gpu_uuids))
            borrowed += report.memory_mib.borrowed // max(1, len(report.gpu_uuids))
    memory = m.DeviceMemory(
        total=device.total_mib, guaranteed=guaranteed, used=used, borrowed=borrowed
    )
    return m.DeviceRow(
        uuid=device.uuid,
        model=device.model,
        memory_mib=memory,
        kernels=here,
        planned=planned,
        ungated=ungated,
        healthy=device.healthy,
        health=device.health,
        foreign_mib=device.foreign_mib,
        foreign_processes=device.foreign_processes,
        utilization=device.utilization,
        temperature_c=device.temperature_c,
        power_w=device.power_w,
        mig=device.mig,
    )


def waiting_row(
    record: WorkloadRecord,
    reason: Reason | None,
    pool: str,
    position: int,
    expected: m.ExpectedWait | None,
    visibility: Authorization,
    identity: Identity,
) -> m.WaitingRow:
    """One queue position; its owner is included if the caller may see it."""
    request, workload = share_of(record.request.pods[0])[0], record.workload
    seen = visibility.reaches(identity, "waiting", record.project, record.user)
    return m.WaitingRow(
        position=position,
        pool=pool,
        project=record.project,
        priority=workload.priority,
        gpu=request.gpu,
        gpu_memory_mib=request.gpu_memory_mib,
        since=m.stamp(workload.created),
        reason=str(reason.code) if reason is not None else "",
        expected_seconds=expected.seconds_median if expected is not None else None,
        mine=any(record.user == user for user, _ in identity.people()),
        workload=record.id if seen else "",
        user=record.user if seen else "",
        name=record.request.name
        if seen and visibility.sees_names(identity, record.user, record.project)
        else "",
    )
