"""Writes a cluster as a scenario, so that production decisions can be replayed elsewhere.

Format: docs/reference/files.md, Scenario.

Running a cycle of the scenario gives the decisions of the cluster's next cycle at the given time.
Promises end with their cycle, so a promised pod is pending here; `nominated` keeps its preferred
node. Members of projects are left out: they do not affect decisions, and they are names of people.
The users of workloads are written only in projects with rules between their members.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from jupyter_gpushare.core.cluster.cluster import Cluster
from jupyter_gpushare.core.cluster.work import Member, Work
from jupyter_gpushare.core.model.amounts import MILLI, is_unlimited
from jupyter_gpushare.core.model.model import (
    Affinity,
    Department,
    Pod,
    Policy,
    Project,
    Spot,
    SubGroup,
    TopologyConstraint,
)

from ..config.consistency import IMPLICIT_DEPARTMENT
from ..config.serialize import (
    Body,
    members_policy_body,
    options_body,
    pool_body,
    quota_body,
    seconds,
)

__all__ = ["snapshot"]

HOUR: Final = 3_600_000


def snapshot(cluster: Cluster, now: int, *, name: str = "snapshot", cycles: int = 1) -> Body:
    """The cluster at time `now` (ms) as a scenario: dicts, lists, text and numbers. The first cycle
    is at `now`.
    """
    policy = cluster.policy
    return {
        "name": name,
        "cycles": cycles,
        "actions": list(policy.options.actions),
        "options": options_body(policy.options),
        "node_pools": [pool_body(pool) for pool in policy.node_pools],
        "topologies": [
            {"name": topology.name, "levels": list(topology.levels)}
            for topology in policy.topologies
        ],
        "priority_classes": dict(policy.priority_classes),
        "nodes": [_node(node.node, node.pool) for _, node in sorted(cluster.nodes.items())],
        "departments": [_queue(each, "parent", each.parent, policy) for each in policy.departments],
        "projects": [_project(each, policy) for each in policy.projects],
        "workloads": [_workload(cluster, work, now) for work in cluster.workloads.values()],
        "usage": [
            {
                "queue": queue,
                "pool": pool,
                "gpu": gpu / 1e6,
                "cpu": cpu / 1e6,
                "memory": memory / 1e6,
            }
            for (queue, pool), (gpu, cpu, memory) in sorted(_usage(cluster, policy).items())
        ],
        "people": list(_people(cluster, now)),
    }


def _queue(queue: Department | Project, key: str, parent: str | None, policy: Policy) -> Body:
    known = {pool.name for pool in policy.node_pools}
    pools = {pool: quota_body(quota) for pool, quota in queue.pools.items() if pool in known}
    return {"name": queue.name, key: parent, "created": seconds(queue.created), "pools": pools}


def _project(project: Project, policy: Policy) -> Body:
    parent = project.department if policy.departments else IMPLICIT_DEPARTMENT
    body = {**_queue(project, "department", parent, policy), "node_pools": list(project.node_pools)}
    if project.members_policy is not None:
        body["members_policy"] = members_policy_body(project.members_policy)
    for pool, rules in project.pool_members_policies.items():
        body["pools"].setdefault(pool, {})["members_policy"] = members_policy_body(rules)
    return body


def _people(cluster: Cluster, now: int) -> Iterator[Body]:
    """What people have used until now, in projects with rules between their members."""
    for (project, pool), people in sorted(cluster.people.pools.items()):
        if cluster.people.of(project, pool) is None:
            continue
        for user in sorted(people.usage):
            usage = people.used(user, now)
            yield {
                "user": user,
                "project": project,
                "pool": pool,
                "gpu_hours": usage.used / MILLI / HOUR,
                "served": None if usage.served is None else seconds(usage.served - now),
                "active": user in people.active,
            }


def _usage(cluster: Cluster, policy: Policy) -> Mapping[tuple[str, str], tuple[int, int, int]]:
    """Measured usage of queues and pools in the policy."""
    known = {
        IMPLICIT_DEPARTMENT,
        *(each.name for each in policy.departments),
        *(each.name for each in policy.projects),
    }
    pools = {pool.name for pool in policy.node_pools}
    return {
        (queue, pool): usage
        for (queue, pool), usage in cluster.usage.items()
        if queue in known and pool in pools
    }


def _node(node: Any, pool: str) -> Body:
    return {
        "name": node.name,
        "pool": pool,
        "gpus": node.gpus,
        "gpu_memory": f"{node.gpu_memory}MiB",
        **({} if is_unlimited(node.cpu) else {"cpu": node.cpu / MILLI}),
        **({} if is_unlimited(node.memory) else {"memory": f"{node.memory}MiB"}),
        "max_pods": node.max_pods,
        "ready": node.ready,
        "reasons": list(node.reasons),
        **({"unhealthy": sorted(node.unhealthy)} if node.unhealthy else {}),
        "labels": dict(node.labels),
        "taints": [
            {"key": key, "value": value, "effect": effect} for key, value, effect in node.taints
        ],
        "mig": dict(node.mig),
    }


def _workload(cluster: Cluster, work: Work, now: int) -> Body:
    """`started` is written only for workloads with placed pods."""
    workload = work.workload
    started = work.started if any(_state(member)[1] for member in work.members.values()) else None
    return {
        "name": workload.id,
        "project": workload.project,
        "priority": workload.priority,
        "preemptible": workload.preemptible,
        "created": seconds(workload.created - now),
        "started": None if started is None else seconds(started - now),
        "stale_for": None if work.stale_since is None else seconds(max(0, now - work.stale_since)),
        "min_pods": _min_pods(work),
        "groups": [_group(group) for group in workload.groups],
        "topology": _topology(workload.topology),
        "node_pools": list(workload.node_pools),
        "held": work.held,
        "ends_when_evicted": workload.ends_when_evicted,
        **_person(cluster, work, now),
        "pods": [
            _pod(pod, work.members[pod.name], cluster.nominated(work.id, pod.name))
            for pod in workload.pods
        ],
    }


def _person(cluster: Cluster, work: Work, now: int) -> Body:
    project = cluster.policy.by_name.get(work.project)
    if project is None or not (project.members_policy or project.pool_members_policies):
        return {}
    return {"user": work.user or None, "pending_since": seconds(work.pending_since - now)}


def _min_pods(work: Work) -> int | None:
    """The minimum of the remaining pods; in a scenario, succeeded pods do not count."""
    workload = work.workload
    return (
        work.podsets[0].minimum
        if workload.done_counts and work.succeeded and not workload.groups
        else workload.min_pods
    )


def _group(group: SubGroup) -> Body:
    inner = [_group(each) for each in group.groups]
    return {
        "name": group.name,
        "min_pods": group.min_pods,
        "topology": _topology(group.topology),
        "groups": inner,
    }


def _topology(constraint: TopologyConstraint | None) -> Body | None:
    return None if constraint is None else dict(constraint._asdict())


def _pod(pod: Pod, member: Member, nominated: str | None) -> Body:
    state, spot = _state(member)
    return {
        "name": pod.name,
        **(
            {"mig": dict(pod.mig)}
            if pod.mig
            else {"gpu_memory": f"{pod.gpu_memory}MiB"}
            if pod.gpu_memory
            else {"gpu": pod.gpu / MILLI}
        ),
        "gpu_devices": pod.gpu_devices,
        "cpu": pod.cpu / MILLI,
        "memory": f"{pod.memory}MiB",
        "state": state,
        "node": spot.node if spot else None,
        "gpus": [f"{spot.node}/{device}" for device in spot.devices] if spot else [],
        "nominated": nominated,
        "group": pod.group or None,
        "priority": pod.priority,
        "node_selector": dict(pod.node_selector),
        "node_affinity": list(pod.node_affinity),
        "tolerations": [
            {"key": key, "value": "" if value == "*" else value} for key, value in pod.tolerations
        ],
        "pod_labels": dict(pod.labels),
        "pod_affinity": _affinity(pod.affinity),
        "pod_anti_affinity": _affinity(pod.anti_affinity),
    }


def _state(member: Member) -> tuple[str, Spot | None]:
    """A pod's state and place at the first cycle of the scenario: promises have ended, and moved
    pods are being released.
    """
    if member.status in ("running", "bound"):
        return "running", member.spot()
    if member.status == "releasing":
        return "releasing", member.spot()
    if member.status == "pipelined":
        old = member.old_spot()
        return ("releasing", old) if old is not None else ("pending", None)
    return member.status, None


def _affinity(affinity: Affinity | None) -> Body | None:
    return (
        None if affinity is None else {"topology": affinity.topology, "match": dict(affinity.match)}
    )
