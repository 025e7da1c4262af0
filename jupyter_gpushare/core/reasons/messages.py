"""The messages of reasons and evictions. Each is one or two sentences that end with a period."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final

from ..cluster.people import PersonBound
from ..cluster.work import Member, Work
from ..model.amounts import GPU, Amounts, is_unlimited
from ..model.booked_window import BookedWindow
from ..model.decisions import QueueShare
from ..model.model import KERNELS_ONLY, Node
from ..model.reason import counted
from ..model.requirements import PodRequirements
from ..model.units import duration_text, memory_text
from .pending_view import PendingView, PoolView

__all__ = [
    "booked",
    "booked_later",
    "crowded",
    "domain_too_small",
    "eviction_message",
    "fair_share_used",
    "host_memory_full",
    "nodes_not_ready",
    "not_enough_free",
    "over_limit",
    "over_person_limit",
    "over_quota",
    "partial_gang",
    "pool_too_small",
    "promised",
    "required_level",
    "reserved",
    "too_large_for_nodes",
    "turn",
]

MEMORY: Final = 2
NOUNS: Final = ("GPU", "CPU")


def eviction_message(member: Member, action: str, by: Work | None) -> str:
    """A message for the owner of an evicted pod."""
    if by is not None and by.room is not None:
        return f'The GPUs are booked for project "{by.project}" from {_time(by.room.start)} on.'
    project = "another project" if by is None else f'project "{by.workload.project}"'
    moves = member.old_spot() is not None and member.node is not None
    where = f" It continues on node {member.node.name}." if moves and member.node else ""
    if action == "reclaim":
        return f"{project[0].upper()}{project[1:]} is entitled to these GPUs.{where}"
    if action == "rotate":
        return f"Idle, and a cell of {project} waits for a GPU."
    if action == "max_turn":
        return f"Its turn is over, and a cell of {project} waits for a GPU."
    if action == "preempt":
        return f"A workload of higher priority in the same project needs these GPUs.{where}"
    if action == "consolidation":
        return f"A larger request of {project} needs the room.{where}"
    return "The gang has been below its minimum for longer than the grace time."


def promised(victims: int) -> str:
    """A place is promised, and `victims` pods still hold it."""
    if not victims:
        return "Starts as soon as the pods that hold its place have left."
    return f"Starts as soon as {counted(victims, 'other pod')} {_have(victims)} left."


def _have(count: int) -> str:
    return "has" if count == 1 else "have"


def partial_gang(found: int, pods: int, view: PoolView) -> str:
    """Only some pods of a gang fit."""
    fit = "fits" if found == 1 else "fit"
    return f"{found} of {pods} pods {fit} in {_pool(view)}; all of them start together."


def reserved(by: str, view: PoolView) -> str:
    """The free GPUs are reserved for a workload."""
    return (
        f"The free GPUs in {_pool(view)} are reserved for workload {by}, which has waited longer."
    )


def booked(window: BookedWindow, kept: int, view: PoolView) -> str:
    """GPUs are kept free for a booking."""
    return (
        f"{counted(kept / GPU, 'GPU')} in {_pool(view)} {_is(kept)} booked for project "
        f'"{window.project}" until {_time(window.end)}.'
    )


def booked_later(work: Work, share: QueueShare, view: PoolView) -> str:
    """Non-preemptible work would hold quota that is booked for later."""
    until = "" if work.max_running is None else f" of at most {duration_text(work.max_running)}"
    return (
        f'Non-preemptible work{until} would need quota of {share.kind} "{share.queue}" in '
        f"{_pool(view)} that is booked before it ends."
    )


def _time(at: int) -> str:
    return datetime.fromtimestamp(at / 1000, UTC).strftime("%Y-%m-%d %H:%M UTC")


def fair_share_used(share: QueueShare, ask: Amounts, view: PoolView) -> str:
    """The project is at its fair share, so it cannot reclaim."""
    fair = counted(share.fair_share.gpu / GPU, "GPU")
    return (
        f'Project "{share.queue}" holds {_gpus(share.allocated.gpu)} of its fair share of {fair} '
        f"in {_pool(view)}. It cannot reclaim {counted(ask.gpu / GPU, 'GPU')} more "
        "and waits for free GPUs."
    )


def turn(ahead: int | None = None) -> str:
    """All shares are in use and take turns; `ahead` None: the position is not known."""
    if ahead is None:
        return "Waiting for a turn."
    return f"Waiting for a turn: {ahead or 'nobody'} ahead of you."


def host_memory_full(view: PoolView) -> str:
    """Idle notebooks keep their shares, because their memory cannot be saved."""
    return (
        "Waiting for a turn: idle notebooks keep their shares, because the host memory for saved"
        f" GPU memory in {_pool(view)} is full."
    )


def not_enough_free(pending: PendingView, ask: Amounts, view: PoolView) -> str:
    """The pool has not enough free GPUs, or only in parts that are too small."""
    memory = next((need.memory for need in pending.needs if need.memory), None)
    asked = f"{memory_text(memory)} of GPU memory" if memory else counted(ask.gpu / GPU, "GPU")
    total, largest = view.free.total, view.free.largest
    if total == 0:
        free = "none is free"
    else:
        free = f"{_gpus(total)} {_is(total)} free"
        if largest < total:
            free += f", {_largest_part(largest)}"
    return f"Needs {asked} in {_pool(view)}; {free}."


def _largest_part(milli: int) -> str:
    """The largest free part: a fraction of one GPU, or whole GPUs of one node."""
    if milli < GPU:
        return f"in parts of at most {_gpus(milli)} of one GPU"
    return f"at most {counted(milli / GPU, 'whole GPU')} on one node"


def crowded(pending: PendingView, level: str | None, view: PoolView) -> str:
    """Enough GPUs are free, but not where CPU, memory or topology fit."""
    total = view.free.total
    free = f"{counted(total / GPU, 'GPU')} {_is(total)} free in {_pool(view)}"
    if level is not None:
        return f"{free}, but no {level} has room for all pods."
    cpu = max(need.cpu for need in pending.needs)
    memory = max(need.ram for need in pending.needs)
    missing = ["room for another pod"]
    if memory:
        missing.insert(0, f"{memory_text(memory)} of memory")
    if cpu:
        missing.insert(0, counted(cpu / GPU, "CPU"))
    per_pod = " for each pod" if len(pending.members_to_place) > 1 else ""
    return f"{free}, but not on a node with {' and '.join(missing)}{per_pod}."


def over_limit(share: QueueShare, resource: int, ask: Amounts) -> str:
    """The request would exceed a queue's limit."""
    used = _used(resource, share.allocated, share.limit, ask)
    return f'Over the limit of {share.kind} "{share.queue}": {used}.'


def over_person_limit(project: str, own: PersonBound, ask: Amounts) -> str:
    """The request would exceed what one person may hold in the project."""
    limit, asked = counted(own.limit / GPU, "GPU"), f"{ask.gpu / GPU:.10g}"
    return (
        f'Over your limit in project "{project}": you hold {own.held / GPU:.10g} of {limit}, '
        f"{asked} more requested."
    )


def over_quota(share: QueueShare, resource: int, held: Amounts, ask: Amounts) -> str:
    """A non-preemptible request would exceed a queue's quota."""
    used = _used(resource, held, share.quota, ask)
    return f'Over the quota of {share.kind} "{share.queue}" for non-preemptible work: {used}.'


def _used(resource: int, held: Amounts, bound: Amounts, ask: Amounts) -> str:
    if resource == MEMORY:
        of = f"{memory_text(held.memory)} of {memory_text(bound.memory)} of memory in use"
        return f"{of}, {memory_text(ask.memory)} more requested"
    noun = NOUNS[resource]
    of = f"{held[resource] / GPU:.10g} of {counted(bound[resource] / GPU, noun)} in use"
    return f"{of}, {ask[resource] / GPU:.10g} more requested"


def nodes_not_ready(nodes: Sequence[Node]) -> str:
    """Only nodes that are not ready could run it."""
    names = ", ".join(map(_with_conditions, nodes[:3]))
    return f"Cannot start: only nodes that are not ready could run it: {names}."


def _with_conditions(node: Node) -> str:
    return f"{node.name} ({', '.join(node.reasons)})" if node.reasons else node.name


def domain_too_small(ask: Amounts, level: str, largest: int, view: PoolView) -> str:
    """The largest domain of a required topology level is too small."""
    asked = f"{counted(ask.gpu / GPU, 'GPU')} requested in one {level}"
    return f"Cannot start: {asked}, but the largest in {_pool(view)} has {_gpus(largest)}."


def pool_too_small(ask: Amounts, view: PoolView) -> str:
    """The whole pool is too small for a gang."""
    asked = f"{counted(ask.gpu / GPU, 'GPU')} requested"
    return f"Cannot start: {asked}, but {_pool(view)} has {_gpus(view.total.gpu)}."


def too_large_for_nodes(need: PodRequirements, pods: int, view: PoolView) -> str:
    """No node of the pool could run a pod even if it were empty."""
    nodes, pool = view.machines.nodes, _pool(view)
    per_pod = " per pod" if pods > 1 else ""
    devices = need.whole or need.devices
    if not nodes:
        return f"Cannot start: {pool} has no nodes."
    if all(KERNELS_ONLY in node.taints for node in nodes) and not need.tolerations:
        return (
            f"Cannot start: the nodes in {pool} are Kubernetes nodes, on which kernels run in user"
            " pods; commands cannot be started there."
        )
    if not view.machines.fitting(need).admitting:
        return f"Cannot start: labels, names or taints of all nodes in {pool} exclude it."
    if need.memory and all(need.memory > node.gpu_memory for node in nodes):
        largest = memory_text(max(node.gpu_memory for node in nodes))
        asked = f"{memory_text(need.memory)} of GPU memory requested{per_pod}"
        return f"Cannot start: {asked}, but the largest GPU in {pool} has {largest}."
    if devices and all(devices > node.gpus for node in nodes):
        asked = f"{counted(devices, 'GPU')} requested{per_pod}"
        most = max(node.gpus for node in nodes)
        return f"Cannot start: {asked}, but the largest node in {pool} has {most}."
    return f"Cannot start: no node in {pool} has all the GPUs, CPU and memory requested{per_pod}."


def required_level(pending: PendingView) -> str | None:
    """The topology level in one of whose domains all of its pods must run."""
    constraint = pending.work.workload.topology
    if constraint is None or constraint.required is None:
        return None
    return f'{constraint.required} of topology "{constraint.name}"'


def _pool(view: PoolView) -> str:
    return f'pool "{view.name}"'


def _gpus(milli: int) -> str:
    return "unlimited" if is_unlimited(milli) else f"{milli / GPU:g}"


def _is(milli: int) -> str:
    return "is" if 0 < milli <= GPU else "are"
