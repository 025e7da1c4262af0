"""The tables that people read: queues, nodes with their GPUs, node pools, projects, and the queue
of pending workloads. Both REST services send these rows.

A field is a column of the REST answer, the CSV, the command line, the dashboard and the reference;
see `columns`.
"""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import field

from .columns import UNLIMITED_TEXT, column
from .common import Body, Stamp

__all__ = [
    "DeviceMemory",
    "DeviceRow",
    "NodeMeasurements",
    "NodeRow",
    "Nodes",
    "PoolRow",
    "Pools",
    "ProjectRow",
    "Projects",
    "QueueRow",
    "Queues",
    "Waiting",
    "WaitingRow",
]


class QueueRow(Body, frozen=True, kw_only=True):
    """One queue in one pool for one resource (GPUs, cores or MiB); null = unlimited."""

    queue: Annotated[str, column("Queue")]
    kind: Annotated[Literal["project", "department"], column("Kind", dashboard=False)]
    pool: Annotated[str, column("Node pool")]
    resource: Annotated[Literal["gpu", "cpu", "memory"], column("Resource")]
    quota: Annotated[float | None, column("Quota", null=UNLIMITED_TEXT)]
    limit: Annotated[float | None, column("Limit", null=UNLIMITED_TEXT)]
    fair_share: Annotated[float, column("Fair share")]
    allocated: Annotated[float, column("Allocated")]
    requested: Annotated[float, column("Requested")]


class Queues(Body, frozen=True, kw_only=True):
    """Answer of `GET queues`."""

    queues: list[QueueRow]


class DeviceMemory(Body, frozen=True, kw_only=True):
    """Memory of one GPU in MiB. `used` is the memory of kernels and pods with a lease here;
    `borrowed` is the part of it above their guarantees.
    """

    total: int
    guaranteed: int
    used: int
    borrowed: int = 0


class DeviceRow(Body, frozen=True, kw_only=True):
    """One GPU of a node."""

    uuid: str
    model: str
    memory_mib: DeviceMemory
    kernels: list[str] = field(default_factory=list)
    """Kernel ids (workload names for pods that are no kernels) that run here now."""
    planned: list[str] = field(default_factory=list)
    """The same for the scheduler's plan."""
    ungated: list[str] = field(default_factory=list)
    """Those of `kernels` whose cells do not ask before they run: nothing is guaranteed to them."""
    healthy: bool = True
    health: str = ""
    """What is wrong with the GPU, in one sentence; "" while it is healthy."""
    foreign_mib: int = 0
    """Memory of other processes: counted, never touched."""
    foreign_processes: int = 0
    utilization: float | None = None
    """Share of the last second in which something ran on the GPU, 0..1; null: not known."""
    temperature_c: int | None = None
    """Temperature of the GPU in °C; null: not measured."""
    power_w: int | None = None
    """Power draw of the whole GPU in watts; null: not measured."""
    mig: bool = False
    """A MIG instance: a device of its own."""


class NodeMeasurements(Body, frozen=True, kw_only=True):
    """What an agent measures of its node and the nodes table shows. A field here is sent by the
    agent and is a column of the table.
    """

    simulated: Annotated[bool, column("Simulated", "Its GPUs are simulated.", dashboard=False)] = (
        False
    )
    tiers: Annotated[
        list[str], column("Capabilities", "The capability tiers that its self-test found.")
    ] = field(default_factory=list)
    tier_problems: Annotated[
        dict[str, str], column("Missing", "For each missing capability tier: why.", cli=False)
    ] = field(default_factory=dict)
    driver: Annotated[
        str, column("Driver", "Version of its NVIDIA driver; empty without one.", cli=False)
    ] = ""
    host_cpu: Annotated[
        float | None,
        column("CPU", "Share of its CPU time in use, 0..1.", cli=False, dashboard=False),
    ] = None
    host_memory_mib: Annotated[
        int | None, column("Host memory (MiB)", cli=False, dashboard=False)
    ] = None
    host_used_mib: Annotated[
        int | None,
        column(
            "Host memory used (MiB)",
            "Without what Linux can free at once.",
            cli=False,
            dashboard=False,
        ),
    ] = None
    saved_mib: Annotated[
        int,
        column("Saved (MiB)", "GPU memory saved in host memory now.", cli=False, dashboard=False),
    ] = 0
    saved_left_mib: Annotated[
        int | None,
        column(
            "Saved: left (MiB)",
            "How much more can be saved: what is left of the budget for saved GPU memory and of "
            "the machine's memory.",
            null="no limit",
            cli=False,
            dashboard=False,
        ),
    ] = None


class NodeRow(NodeMeasurements, frozen=True, kw_only=True):
    """One node. The fields of `NodeMeasurements` come from its agent, the others from the
    scheduler.
    """

    name: Annotated[str, column("Node")]
    pool: Annotated[str, column("Node pool")]
    status: Annotated[str, column("Status", "Ready or Not ready.")]
    reasons: Annotated[
        list[str], column("Reason", "Why it is not ready, or takes no new workloads.")
    ] = field(default_factory=list)
    reason_details: Annotated[
        dict[str, str],
        column("Details", "For a reason that Kubernetes gave: its own message.", cli=False),
    ] = field(default_factory=dict)
    gpus: Annotated[int, column("GPUs")] = 0
    gpu_allocated: Annotated[float, column("Allocated", "GPUs counted in quotas here.")] = 0.0
    cordoned: Annotated[
        bool, column("Cordoned", "An administrator keeps new workloads away.", cli=False)
    ] = False
    devices: Annotated[
        list[DeviceRow], column("Devices", "Its GPUs.", cli=False, dashboard=False)
    ] = field(default_factory=list)


class Nodes(Body, frozen=True, kw_only=True):
    """Answer of `GET nodes`."""

    nodes: list[NodeRow]


class PoolRow(Body, frozen=True, kw_only=True):
    """One node pool."""

    name: Annotated[str, column("Node pool")]
    nodes: Annotated[int, column("Nodes")]
    gpus: Annotated[int, column("GPUs")]
    gpu_allocated: Annotated[float, column("Allocated")]
    placement_gpu: Annotated[str, column("Placement")]
    placement_cpu: Annotated[str, column("CPU placement", cli=False, dashboard=False)]
    workloads_per_gpu: Annotated[int | None, column("Workloads per GPU", null="off")]
    pending: Annotated[int, column("Waiting", "Number of pending workloads.")]
    status: Annotated[
        str, column("Status", "Ready while at least one of its nodes is, else Not ready.")
    ] = "Ready"
    nodes_ready: Annotated[int, column("Ready", "Number of ready nodes.")] = 0
    reasons: Annotated[
        list[str],
        column("Reason", "Why nodes are not ready, each reason with the number of nodes."),
    ] = field(default_factory=list)


class Pools(Body, frozen=True, kw_only=True):
    """Answer of `GET pools`."""

    pools: list[PoolRow]


class ProjectRow(Body, frozen=True, kw_only=True):
    """One project in one pool."""

    name: Annotated[str, column("Project")]
    department: Annotated[str | None, column("Department")]
    pool: Annotated[str, column("Node pool")]
    member: Annotated[bool, column("Member", "Whether the caller may submit to it.")]
    gpu_quota: Annotated[float | None, column("Quota", null=UNLIMITED_TEXT)]
    gpu_limit: Annotated[float | None, column("Limit", null=UNLIMITED_TEXT, cli=False)]
    gpu_fair_share: Annotated[float, column("Fair share")]
    gpu_allocated: Annotated[float, column("Allocated")]
    gpu_requested: Annotated[float, column("Requested")]


class Projects(Body, frozen=True, kw_only=True):
    """Answer of `GET projects`."""

    projects: list[ProjectRow]


class WaitingRow(Body, frozen=True, kw_only=True):
    """One place in the queue. `workload`, `user` and `name` are "" where the caller may not see
    them.
    """

    position: Annotated[int, column("Position")]
    pool: Annotated[str, column("Node pool")]
    project: Annotated[str, column("Project")]
    priority: Annotated[int, column("Priority", cli=False)]
    gpu: Annotated[float | None, column("GPUs")]
    gpu_memory_mib: Annotated[int | None, column("GPU memory (MiB)")]
    since: Annotated[Stamp, column("Pending since")]
    reason: Annotated[str, column("Reason")]
    expected_seconds: Annotated[
        float | None, column("Expected wait (s)", "Median of similar requests; null: not known.")
    ] = None
    mine: Annotated[bool, column("Mine")] = False
    workload: Annotated[str, column("Workload", cli=False)] = ""
    user: Annotated[str, column("User")] = ""
    name: Annotated[str, column("Name")] = ""


class Waiting(Body, frozen=True, kw_only=True):
    """Answer of `GET waiting`."""

    waiting: list[WaitingRow]
