"""The reason why one workload waits, from the numbers of a cycle's end: which rule stopped it, in
the order in which rules stop.

Refuses to know how it was tried: it compares what the workload asks for with what pools, queues and
nodes have.
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
from .suggestions import helps_for

__all__ = ["reason_of"]

UNITS: Final = (("GPU", "GPUs"), ("CPU", "CPUs"), ("MiB of memory", "MiB of memory"))
MEMORY: Final = 2


def reason_of(case: PendingView) -> Reason:
    """The first of the rules below that applies, in the words of the closed set."""
    if case.is_held:
        return Reason(
            ReasonCode.HELD, f"Workload {case.id} is held back until its owner lets it go."
        )
    if not case.is_project_known:
        return Reason(
            ReasonCode.UNKNOWN_PROJECT, f"Project {case.work.project} is not in the policy."
        )
    if not case.pools:
        names = ", ".join(case.work.workload.node_pools) or "none"
        known = Suggestion(
            "node_pools",
            ",".join(sorted(case.views)),
            f"Name one of the pools that exist: {', '.join(sorted(case.views))}.",
        )
        return Reason(
            ReasonCode.UNKNOWN_POOL, f"None of its node pools ({names}) exists.", helps=(known,)
        )
    problem = problem_of(case.work.workload, case.policy)
    if problem:
        return Reason(ReasonCode.INVALID_REQUEST, f"The request cannot be understood: {problem}.")
    if case.is_promised:
        return _promised(case)
    if not case.work.is_ready:
        return _explained(
            case,
            ReasonCode.WAITING_FOR_GANG,
            "Too few of its pods are left to reach its minimum, so none is started.",
            case.view,
        )
    return _by_pool(case)


def _by_pool(case: PendingView) -> Reason:
    """The reason in the most promising of its pools: the first where it is not plainly impossible."""
    found = [_in_pool(case, case.views[name]) for name in case.pools]
    hopeless = {ReasonCode.NEVER_FITS, ReasonCode.NODE_NOT_READY}
    return next((reason for reason in found if reason.code not in hopeless), found[0])


def _in_pool(case: PendingView, view: PoolView) -> Reason:
    ask = case.ask(view)
    impossible = _never(case, view)
    if impossible is not None:
        return impossible
    bound = _bound(case, view, ask)
    if bound is not None:
        return bound
    mine = view.queues[case.work.project]
    over = not mine.allocated.plus(ask).fits_in(mine.fair_share)
    members = case.asking
    largest = max(
        (m.need.estimate(view.smallest)[0] // max(1, m.need.devices or 1) for m in members),
        default=0,
    )
    if not _has_gpus(case):
        return _explained(
            case,
            ReasonCode.WAITING_FOR_FREE_GPU,
            f"No node of pool {view.name} has the CPU and memory for it now.",
            view,
        )
    if len(members) > 1 and 0 < case.found.get(view.name, 0) < len(members):
        found = case.found[view.name]
        text = f"There is room for {found} of its {len(members)} pods in pool {view.name}; it starts when all of them fit."
        return _explained(case, ReasonCode.WAITING_FOR_GANG, text, view)
    if (
        view.reservation is not None
        and view.reservation[0] != case.id
        and view.free.total - view.kept < ask.gpu <= view.free.total
    ):
        text = f"The free GPUs of pool {view.name} are kept for workload {view.reservation[0]}, which has waited for longer."
        return _explained(case, ReasonCode.WAITING_FOR_RESERVATION, text, view)
    if view.before.total >= ask.gpu > view.free.total and view.before.largest >= min(largest, GPU):
        text = f"The free GPUs of pool {view.name} went to workloads that were ahead of it."
        return _explained(case, ReasonCode.WAITING_BEHIND, text, view)
    own = mine.allocated.gpu - view.fixed[case.work.project].gpu
    if over and view.lent - own >= ask.gpu:
        text = (
            f"Project {mine.queue} holds {_gpus(mine.allocated.gpu)} of its fair share of {counted(mine.fair_share.gpu / GPU, 'GPU')} in pool "
            f"{view.name}, so this request for {counted(ask.gpu / GPU, 'GPU')} cannot take GPUs back from others and waits for free ones."
        )
        return _explained(case, ReasonCode.WAITING_FOR_QUOTA, text, view)
    if largest <= view.free.largest and ask.gpu <= view.free.total:
        return _explained(case, ReasonCode.WAITING_FOR_FREE_GPU, _crowded(case, view), view)
    free = f"{_gpus(view.free.total)} {'is' if 0 < view.free.total <= GPU else 'are'} free, at most {_gpus(view.free.largest)} on one node"
    text = f"It needs {_asked(case, ask)} in pool {view.name}, where {free}."
    return _explained(case, ReasonCode.WAITING_FOR_FREE_GPU, text, view)


def _crowded(case: PendingView, view: PoolView) -> str:
    """GPUs are free, but not where the rest is."""
    level = _level(case)
    if level is not None:
        return f"{_gpus(view.free.total)} of the GPUs of pool {view.name} are free, but no {level} has room for all of its pods."
    pods = len(case.asking)
    cpu, memory = max(need.cpu for need in case.needs), max(need.ram for need in case.needs)
    rest = (
        [counted(cpu / GPU, "CPU")] * (cpu > 0)
        + [f"{memory} MiB of memory"] * (memory > 0)
        + ["room for another pod"]
    )
    each = "each of its pods needs" if pods > 1 else "it needs"
    return f"{_gpus(view.free.total)} of the GPUs of pool {view.name} are free, but not on a node that has {' and '.join(rest)} left, which {each}."


def _has_gpus(case: PendingView) -> bool:
    return any(need.gpu for need in case.needs)


def _promised(case: PendingView) -> Reason:
    view = case.view if case.pools else next(iter(case.views.values()))
    who = (
        "others have"
        if not case.victims
        else "one other pod has"
        if case.victims == 1
        else f"{case.victims} other pods have"
    )
    return _explained(
        case,
        ReasonCode.WAITING_FOR_RECLAIM,
        f"Its place is promised and it starts as soon as {who} left it.",
        view,
    )


def _bound(case: PendingView, view: PoolView, ask: Amounts) -> Reason | None:
    """A limit, or for non-preemptible work a quota, of its project or of a department above it."""
    for name in view.paths[case.work.project]:
        queue, fixed = view.queues[name], view.fixed[name]
        for i in range(3):
            if not ask[i]:
                continue
            who = f"{queue.kind.capitalize()} {name}"
            if queue.allocated[i] + ask[i] > queue.limit[i]:
                held = f"{_of(i, queue.allocated)} of its limit of {_of(i, queue.limit, UNITS[i])}"
                text = f"{who} holds {held} and this request needs {_of(i, ask)} more."
                return _explained(case, ReasonCode.OVER_LIMIT, text, view, queue)
            if not case.work.preemptible and fixed[i] + ask[i] > queue.quota[i]:
                text = (
                    f"{who} holds {_of(i, fixed)} of its quota of {_of(i, queue.quota, UNITS[i])} in non-preemptible work and this "
                    f"non-preemptible request needs {_of(i, ask)} more."
                )
                return _explained(case, ReasonCode.NON_PREEMPTIBLE_OVER_QUOTA, text, view, queue)
    return None


def _never(case: PendingView, view: PoolView) -> Reason | None:
    """Whether even an empty pool could not hold it, or only nodes that are not ready could."""
    for need in dict.fromkeys(case.needs):
        fitting = view.machines.fitting(need)
        if fitting.ready:
            continue
        if fitting.unready:
            names = ", ".join(
                node.name + (f" ({', '.join(node.reasons)})" if node.reasons else "")
                for node in fitting.unready[:3]
            )
            return _explained(
                case,
                ReasonCode.NODE_NOT_READY,
                f"Only nodes that are not ready could take it: {names}.",
                view,
            )
        return _explained(
            case,
            ReasonCode.NEVER_FITS,
            f"No node of pool {view.name} could take it, even empty: {_obstacle(need, view)}.",
            view,
        )
    ask = case.ask(view)
    level = _level(case)
    if level is not None and len(case.needs) > 1 and not any(need.mig for need in case.needs):
        largest = _largest_domain(case, view)
        if ask.gpu > largest:
            text = f"Its pods need {counted(ask.gpu / GPU, 'GPU')} in one {level}, and the largest in pool {view.name} has {_gpus(largest)}."
            return _explained(case, ReasonCode.NEVER_FITS, text, view)
    if ask.gpu > view.total.gpu and len(case.needs) > 1:
        text = f"Together its pods need {counted(ask.gpu / GPU, 'GPU')}, and pool {view.name} has {_gpus(view.total.gpu)}."
        return _explained(case, ReasonCode.NEVER_FITS, text, view)
    return None


def _level(case: PendingView) -> str | None:
    """The part of a topology in which all of its pods have to be."""
    together = case.work.workload.topology
    return (
        None
        if together is None or together.required is None
        else f"{together.required} of topology {together.name}"
    )


def _largest_domain(case: PendingView, view: PoolView) -> int:
    """Milli-GPU of the largest such part, empty and whole."""
    together = case.work.workload.topology
    assert together is not None
    topology = topology_named(case.policy, together.name)
    assert topology is not None
    assert together.required is not None
    levels = topology.levels[: topology.levels.index(together.required) + 1]
    sizes: Counter[tuple[str, ...]] = Counter()
    for node in view.machines.nodes:
        if all(level in node.labels for level in levels):
            sizes[tuple(node.labels[level] for level in levels)] += node.gpus * GPU
    return max(sizes.values(), default=0)


def _obstacle(need: PodRequirements, view: PoolView) -> str:
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
    case: PendingView,
    code: ReasonCode,
    message: str,
    view: PoolView,
    queue: QueueShare | None = None,
) -> Reason:
    queue = queue or view.queues.get(case.work.project)
    free = view.free
    numbers: dict[str, float] = {
        "requested": case.ask(view).gpu / GPU,
        "free_total": free.total / GPU,
        "free_largest": free.largest / GPU,
    }
    if queue is not None:
        numbers |= {
            "allocated": queue.allocated.gpu / GPU,
            "fair_share": queue.fair_share.gpu / GPU,
        }
        if code == ReasonCode.NON_PREEMPTIBLE_OVER_QUOTA:
            numbers["allocated"] = view.fixed[queue.queue].gpu / GPU
        for name, amount in (("quota", queue.quota.gpu), ("limit", queue.limit.gpu)):
            if not is_unlimited(amount):
                numbers[name] = amount / GPU
    if case.victims:
        numbers["victims"] = float(case.victims)
    return Reason(code, message, numbers, helps_for(case, code, view))


def _asked(case: PendingView, ask: Amounts) -> str:
    memory = next((need.memory for need in case.needs if need.memory), None)
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
