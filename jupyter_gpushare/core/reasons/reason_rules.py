"""Chooses the reason for which one workload waits, by comparing its request with what is there.

The order of the rules and the codes: docs/explanation/scheduling.md, Reasons.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

from ..cluster.topology import problem_of, topology_named
from ..model.amounts import GPU, Amounts, is_unlimited
from ..model.decisions import QueueShare
from ..model.reason import Reason, ReasonCode, Suggestion, counted
from ..model.requirements import PodRequirements
from .pending_view import PendingView, PoolView
from .suggestions import suggestions_for

__all__ = ["reason_of"]

UNITS: Final = (("GPU", "GPUs"), ("CPU", "CPUs"), ("MiB of memory", "MiB of memory"))
MEMORY: Final = 2


def reason_of(pending: PendingView) -> Reason:
    """The first rule that applies gives the reason."""
    if pending.is_held:
        return Reason(
            ReasonCode.HELD, f"Workload {pending.id} is held back until its owner lets it go."
        )
    if not pending.is_project_known:
        return Reason(
            ReasonCode.UNKNOWN_PROJECT, f"Project {pending.work.project} is not in the policy."
        )
    if not pending.pools:
        names = ", ".join(pending.work.workload.node_pools) or "none"
        known = Suggestion(
            "node_pools",
            ",".join(sorted(pending.views)),
            f"Name one of the pools that exist: {', '.join(sorted(pending.views))}.",
        )
        return Reason(
            ReasonCode.UNKNOWN_POOL, f"None of its node pools ({names}) exists.", helps=(known,)
        )
    problem = problem_of(pending.work.workload, pending.policy)
    if problem:
        return Reason(ReasonCode.INVALID_REQUEST, f"The request cannot be understood: {problem}.")
    if pending.is_promised:
        return _promised(pending)
    if not pending.work.is_ready:
        return _explained(
            pending,
            ReasonCode.WAITING_FOR_GANG,
            "Too few of its pods are left to reach its minimum, so none is started.",
            pending.view,
        )
    return _by_pool(pending)


def _by_pool(pending: PendingView) -> Reason:
    """The reason in the first of its pools where it is not impossible, else in the first pool."""
    found = [_in_pool(pending, pending.views[name]) for name in pending.pools]
    hopeless = {ReasonCode.NEVER_FITS, ReasonCode.NODE_NOT_READY}
    return next((reason for reason in found if reason.code not in hopeless), found[0])


def _in_pool(pending: PendingView, view: PoolView) -> Reason:
    ask = pending.ask(view)
    impossible = _never_fits(pending, view)
    if impossible is not None:
        return impossible
    bound = _blocking_bound(pending, view, ask)
    if bound is not None:
        return bound
    mine = view.queues[pending.work.project]
    over = not mine.allocated.plus(ask).fits_in(mine.fair_share)
    members = pending.members_to_place
    largest = max(
        (m.need.estimate(view.smallest)[0] // max(1, m.need.devices or 1) for m in members),
        default=0,
    )
    if not _has_gpus(pending):
        return _explained(
            pending,
            ReasonCode.WAITING_FOR_FREE_GPU,
            f"No node of pool {view.name} has the CPU and memory for it now.",
            view,
        )
    if len(members) > 1 and 0 < pending.found.get(view.name, 0) < len(members):
        found = pending.found[view.name]
        text = f"There is room for {found} of its {len(members)} pods in pool {view.name}; it starts when all of them fit."
        return _explained(pending, ReasonCode.WAITING_FOR_GANG, text, view)
    if (
        view.reservation is not None
        and view.reservation[0] != pending.id
        and view.free.total - view.reserved_free < ask.gpu <= view.free.total
    ):
        text = f"The free GPUs of pool {view.name} are kept for workload {view.reservation[0]}, which has waited for longer."
        return _explained(pending, ReasonCode.WAITING_FOR_RESERVATION, text, view)
    if view.before.total >= ask.gpu > view.free.total and view.before.largest >= min(largest, GPU):
        text = f"The free GPUs of pool {view.name} went to workloads that were ahead of it."
        return _explained(pending, ReasonCode.WAITING_BEHIND, text, view)
    own = mine.allocated.gpu - view.non_preemptible[pending.work.project].gpu
    if over and view.preemptible_held - own >= ask.gpu:
        text = (
            f"Project {mine.queue} holds {_gpus(mine.allocated.gpu)} of its fair share of {counted(mine.fair_share.gpu / GPU, 'GPU')} in pool "
            f"{view.name}, so this request for {counted(ask.gpu / GPU, 'GPU')} cannot take GPUs back from others and waits for free ones."
        )
        return _explained(pending, ReasonCode.WAITING_FOR_QUOTA, text, view)
    if largest <= view.free.largest and ask.gpu <= view.free.total:
        return _explained(pending, ReasonCode.WAITING_FOR_FREE_GPU, _crowded(pending, view), view)
    free = f"{_gpus(view.free.total)} {'is' if 0 < view.free.total <= GPU else 'are'} free, at most {_gpus(view.free.largest)} on one node"
    text = f"It needs {_asked(pending, ask)} in pool {view.name}, where {free}."
    return _explained(pending, ReasonCode.WAITING_FOR_FREE_GPU, text, view)


def _crowded(pending: PendingView, view: PoolView) -> str:
    """The message if enough GPUs are free, but not where CPU, memory or topology fit."""
    level = _level(pending)
    if level is not None:
        return f"{_gpus(view.free.total)} of the GPUs of pool {view.name} are free, but no {level} has room for all of its pods."
    pods = len(pending.members_to_place)
    cpu, memory = max(need.cpu for need in pending.needs), max(need.ram for need in pending.needs)
    rest = (
        [counted(cpu / GPU, "CPU")] * (cpu > 0)
        + [f"{memory} MiB of memory"] * (memory > 0)
        + ["room for another pod"]
    )
    each = "each of its pods needs" if pods > 1 else "it needs"
    return f"{_gpus(view.free.total)} of the GPUs of pool {view.name} are free, but not on a node that has {' and '.join(rest)} left, which {each}."


def _has_gpus(pending: PendingView) -> bool:
    return any(need.gpu for need in pending.needs)


def _promised(pending: PendingView) -> Reason:
    view = pending.view if pending.pools else next(iter(pending.views.values()))
    who = (
        "others have"
        if not pending.victims
        else "one other pod has"
        if pending.victims == 1
        else f"{pending.victims} other pods have"
    )
    return _explained(
        pending,
        ReasonCode.WAITING_FOR_RECLAIM,
        f"Its place is promised and it starts as soon as {who} left it.",
        view,
    )


def _blocking_bound(pending: PendingView, view: PoolView, ask: Amounts) -> Reason | None:
    """The limit, or for non-preemptible work the quota, that its project or a department
    exceeds.
    """
    for name in view.paths[pending.work.project]:
        queue, non_preemptible = view.queues[name], view.non_preemptible[name]
        for i in range(3):
            if not ask[i]:
                continue
            who = f"{queue.kind.capitalize()} {name}"
            if queue.allocated[i] + ask[i] > queue.limit[i]:
                held = f"{_of(i, queue.allocated)} of its limit of {_of(i, queue.limit, UNITS[i])}"
                text = f"{who} holds {held} and this request needs {_of(i, ask)} more."
                return _explained(pending, ReasonCode.OVER_LIMIT, text, view, queue)
            if not pending.work.preemptible and non_preemptible[i] + ask[i] > queue.quota[i]:
                text = (
                    f"{who} holds {_of(i, non_preemptible)} of its quota of {_of(i, queue.quota, UNITS[i])} in non-preemptible work and this "
                    f"non-preemptible request needs {_of(i, ask)} more."
                )
                return _explained(pending, ReasonCode.NON_PREEMPTIBLE_OVER_QUOTA, text, view, queue)
    return None


def _never_fits(pending: PendingView, view: PoolView) -> Reason | None:
    """Whether even an empty pool could not hold it, or only nodes that are not ready could."""
    for need in dict.fromkeys(pending.needs):
        fitting = view.machines.fitting(need)
        if fitting.ready:
            continue
        if fitting.unready:
            names = ", ".join(
                node.name + (f" ({', '.join(node.reasons)})" if node.reasons else "")
                for node in fitting.unready[:3]
            )
            return _explained(
                pending,
                ReasonCode.NODE_NOT_READY,
                f"Only nodes that are not ready could take it: {names}.",
                view,
            )
        return _explained(
            pending,
            ReasonCode.NEVER_FITS,
            f"No node of pool {view.name} could take it, even empty: {_missing_capacity(need, view)}.",
            view,
        )
    ask = pending.ask(view)
    level = _level(pending)
    if level is not None and len(pending.needs) > 1 and not any(need.mig for need in pending.needs):
        largest = _largest_domain(pending, view)
        if ask.gpu > largest:
            text = f"Its pods need {counted(ask.gpu / GPU, 'GPU')} in one {level}, and the largest in pool {view.name} has {_gpus(largest)}."
            return _explained(pending, ReasonCode.NEVER_FITS, text, view)
    if ask.gpu > view.total.gpu and len(pending.needs) > 1:
        text = f"Together its pods need {counted(ask.gpu / GPU, 'GPU')}, and pool {view.name} has {_gpus(view.total.gpu)}."
        return _explained(pending, ReasonCode.NEVER_FITS, text, view)
    return None


def _level(pending: PendingView) -> str | None:
    """The topology level in one of whose domains all of its pods must run."""
    together = pending.work.workload.topology
    return (
        None
        if together is None or together.required is None
        else f"{together.required} of topology {together.name}"
    )


def _largest_domain(pending: PendingView, view: PoolView) -> int:
    """Milli-GPU of the largest such domain if it were empty."""
    together = pending.work.workload.topology
    assert together is not None
    topology = topology_named(pending.policy, together.name)
    assert topology is not None
    assert together.required is not None
    levels = topology.levels[: topology.levels.index(together.required) + 1]
    sizes: Counter[tuple[str, ...]] = Counter()
    for node in view.machines.nodes:
        if all(level in node.labels for level in levels):
            sizes[tuple(node.labels[level] for level in levels)] += node.gpus * GPU
    return max(sizes.values(), default=0)


def _missing_capacity(need: PodRequirements, view: PoolView) -> str:
    nodes = view.machines.nodes
    if not nodes:
        return "it has no nodes"
    if not view.machines.fitting(need).admitting:
        return "no node has the labels, names or taints that it asks for"
    if need.memory and all(need.memory > node.gpu_memory for node in nodes):
        return f"it asks for {need.memory} MiB of one GPU, and the largest has {max(n.gpu_memory for n in nodes)}"
    devices = need.whole or need.devices
    if devices and all(devices > node.gpus for node in nodes):
        return f"one pod asks for {devices} GPUs, and the largest node has {max(n.gpus for n in nodes)}"
    return "no node has all the GPUs, CPU and memory that one pod asks for"


def _explained(
    pending: PendingView,
    code: ReasonCode,
    message: str,
    view: PoolView,
    queue: QueueShare | None = None,
) -> Reason:
    queue = queue or view.queues.get(pending.work.project)
    free = view.free
    numbers: dict[str, float] = {
        "requested": pending.ask(view).gpu / GPU,
        "free_total": free.total / GPU,
        "free_largest": free.largest / GPU,
    }
    if queue is not None:
        numbers |= {
            "allocated": queue.allocated.gpu / GPU,
            "fair_share": queue.fair_share.gpu / GPU,
        }
        if code == ReasonCode.NON_PREEMPTIBLE_OVER_QUOTA:
            numbers["allocated"] = view.non_preemptible[queue.queue].gpu / GPU
        for name, amount in (("quota", queue.quota.gpu), ("limit", queue.limit.gpu)):
            if not is_unlimited(amount):
                numbers[name] = amount / GPU
    if pending.victims:
        numbers["victims"] = float(pending.victims)
    return Reason(code, message, numbers, suggestions_for(pending, code, view))


def _asked(pending: PendingView, ask: Amounts) -> str:
    memory = next((need.memory for need in pending.needs if need.memory), None)
    return f"{memory} MiB of a GPU" if memory else counted(ask.gpu / GPU, "GPU")


def _gpus(milli: int) -> str:
    return "unlimited" if is_unlimited(milli) else f"{milli / GPU:g}"


def _of(resource: int, amounts: Amounts, unit: tuple[str, str] | None = None) -> str:
    """GPUs and CPUs in units, memory in MiB; with the unit's name if one is given."""
    amount = amounts[resource]
    if is_unlimited(amount):
        return "unlimited" if unit is None else f"unlimited {unit[1]}"
    number = float(amount) if resource == MEMORY else amount / GPU
    return f"{number:.10g}" if unit is None else counted(number, *unit)
