"""Validates a request and turns it into the core's `Workload`. Every error names the field; nothing
is changed.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from dataclasses import replace as changed_value
from functools import partial
from typing import Final

from msgspec.structs import replace

from jupyter_gpushare import messages as m
from jupyter_gpushare.core.model.amounts import MILLI
from jupyter_gpushare.core.model.errors import InvalidInput, NotAllowed
from jupyter_gpushare.core.model.gpu_request import read_gpu_request
from jupyter_gpushare.core.model.model import (
    DEFAULT_POOL,
    KERNELS_ONLY,
    NON_PREEMPTIBLE_FROM,
    Pod,
    Policy,
    Project,
    Workload,
)
from jupyter_gpushare.core.model.units import read_cpu, read_memory

from ..policy.policy_file import EVERY_USER, LoadedPolicy
from .subgroups import read_groups, read_together

__all__ = [
    "MAX_PODS",
    "AdmittedRequest",
    "check_names",
    "check_units",
    "is_manager",
    "is_member",
    "numbered",
    "pools_tried",
    "projects_of",
    "read_request",
    "share_of",
]

MAX_PODS: Final = 10_000
MAX_NAME: Final = 1_000
MAX_BYTES: Final = 2_000
"""PostgreSQL stores no zero bytes, and an index entry has at most 2704 bytes; a lease's id is this
id and a suffix.
"""
MAX_COMMAND: Final = 2**18
"""Characters of a command with its environment."""
KERNEL_TOLERATIONS: Final = ((KERNELS_ONLY[0], "*"),)
"""What everything but a command tolerates."""
VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclass(frozen=True, slots=True)
class AdmittedRequest:
    """A valid request: the workload that the core schedules, and what only the service needs."""

    request: m.WorkloadRequest
    workload: Workload
    user: str


def is_member(project: Project, user: str, groups: Sequence[str]) -> bool:
    """Whether this user may submit to the project. Without members, or with `*` among them,
    everyone may.
    """
    members = project.members
    return (
        not members
        or EVERY_USER in members
        or user in members
        or any(f"group:{group}" in members for group in groups)
    )


def is_manager(project: Project, user: str, groups: Sequence[str]) -> bool:
    """Whether this user manages the workloads of the project's members."""
    managers = project.managers
    return user in managers or any(f"group:{group}" in managers for group in groups)


def projects_of(policy: Policy, user: str, groups: Sequence[str]) -> list[str]:
    """Names of the projects that this user may use, in the order of the policy."""
    return [project.name for project in policy.projects if is_member(project, user, groups)]


def read_request(
    request: m.WorkloadRequest,
    policy: Policy,
    *,
    user: str,
    allowed: Sequence[str],
    default: str | None,
    created: int,
) -> AdmittedRequest:
    """Validates a request against the policy. `allowed`: projects that this user may use, best
    first.

    Raises:
        InvalidInput: with the field: unknown project, pool or class, bad amount, no or duplicate
    pods.
        NotAllowed: the user is not a member of the project.
    """
    request = numbered(request)
    check_names(request)
    _check_command(request)
    project = _project(request, policy, user, allowed, default)
    priority = _priority(request.priority_class, policy)
    pods = _pods(request)
    workload = Workload(
        id=request.id,
        project=project,
        pods=pods,
        priority=priority,
        preemptible=request.preemptible
        if request.preemptible is not None
        else priority < NON_PREEMPTIBLE_FROM,
        created=created,
        min_pods=_min_pods(request),
        groups=read_groups(request, policy),
        topology=read_together(request.topology, policy),
        node_pools=_pools(request, policy),
        done_counts=request.command is not None,
        user=user,
    )
    return AdmittedRequest(request, workload, user)


def numbered(request: m.WorkloadRequest) -> m.WorkloadRequest:
    """The request with a name for every pod: its own, or its number."""
    if all(pod.name for pod in request.pods):
        return request
    return replace(
        request,
        pods=[pod if pod.name else replace(pod, name=str(i)) for i, pod in enumerate(request.pods)],
    )


def check_names(request: m.WorkloadRequest) -> None:
    """Validates id, names and the number of pods. Raises InvalidInput."""
    if not request.id or len(request.id) > MAX_NAME:
        raise InvalidInput(f"id must have 1 to {MAX_NAME} characters", field="id")
    for field in ("id", "kernel_id", "name"):
        text = getattr(request, field) or ""
        if "\0" in text or len(text.encode(errors="replace")) > MAX_BYTES:
            raise InvalidInput(
                f"{field} must have at most {MAX_BYTES} bytes and no NUL byte", field=field
            )
    if len(request.name) > MAX_NAME:
        raise InvalidInput(f"name must have at most {MAX_NAME} characters", field="name")
    if not 1 <= len(request.pods) <= MAX_PODS:
        raise InvalidInput(
            f"a workload has 1 to {MAX_PODS} pods, got {len(request.pods)}", field="pods"
        )
    names = [pod.name for pod in request.pods]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise InvalidInput(f"duplicate pod name {twice!r}", field="pods")


def check_units(request: m.WorkloadRequest) -> None:
    """Memory of a new request has a unit. Requests in a database of version 0.1.0 may have none.

    Raises: InvalidInput: with the field.
    """
    valid: set[tuple[str, int | str | None]] = {("memory", None), ("gpu_memory", None)}
    for i, pod in enumerate(request.pods):
        where = f"pods[{i}]." if len(request.pods) > 1 else ""
        for amount in (("memory", pod.memory), ("gpu_memory", pod.gpu_memory)):
            if amount not in valid:
                name, value = amount
                _amount(partial(read_memory, needs_unit=True), value, f"{where}{name}")
                valid.add(amount)


def _check_command(request: m.WorkloadRequest) -> None:
    command = request.command
    if command is None:
        return
    if request.kernel_id is not None:
        raise InvalidInput(
            "command excludes kernel_id: a kernel is started by its Jupyter server", field="command"
        )
    if not command.argv or not command.argv[0]:
        raise InvalidInput("a command needs a program", field="command.argv")
    if command.cwd and not command.cwd.startswith("/"):
        raise InvalidInput(
            f"the working directory must be an absolute path, got {command.cwd!r}",
            field="command.cwd",
        )
    for name in command.env:
        if not VARIABLE.fullmatch(name):
            raise InvalidInput(f"invalid environment variable name {name!r}", field="command.env")
    texts = [*command.argv, command.cwd, *command.env, *command.env.values()]
    if any("\x00" in text for text in texts):
        raise InvalidInput("a command cannot contain NUL", field="command")
    if (size := sum(map(len, texts))) > MAX_COMMAND:
        raise InvalidInput(
            f"a command with its environment has at most {MAX_COMMAND} characters, got {size}",
            field="command",
        )


def _project(
    request: m.WorkloadRequest,
    policy: Policy,
    user: str,
    allowed: Sequence[str],
    default: str | None,
) -> str:
    if request.project is None:
        if not allowed:
            raise NotAllowed(f"{user} is not a member of any project", field="project")
        return default if default is not None and default in allowed else allowed[0]
    if request.project in allowed:
        return request.project
    if request.project not in {project.name for project in policy.projects}:
        raise InvalidInput(f"unknown project {request.project!r}{_known(allowed)}", field="project")
    raise NotAllowed(f"{user} is not a member of project {request.project!r}", field="project")


def _known(names: Sequence[str]) -> str:
    return f"; known: {', '.join(names)}" if names else ""


def _priority(given: str | int | None, policy: Policy) -> int:
    if given is None:
        return policy.priority_classes[policy.default_priority_class]
    if isinstance(given, int) or re.fullmatch(r"-?[0-9]{1,20}", given):
        number = int(given)
        if not 0 <= number <= 1_000_000_000:
            raise InvalidInput(
                f"priority must be 0 to 1000000000, got {number}", field="priority_class"
            )
        return number
    if given not in policy.priority_classes:
        raise InvalidInput(
            f"unknown priority class {given!r}{_known(list(policy.priority_classes))}",
            field="priority_class",
        )
    return policy.priority_classes[given]


def pools_tried(workload: Workload, policy: Policy) -> tuple[str, ...]:
    """Node pools that it may use, in order: its own list, else its project's, else `default`."""
    if workload.node_pools:
        return workload.node_pools
    project = policy.by_name.get(workload.project)
    return (project.node_pools if project else ()) or (DEFAULT_POOL,)


def with_time_limit(workload: Workload, loaded: LoadedPolicy) -> Workload:
    """The workload with the longest running time that the policy allows."""
    pools = pools_tried(workload, loaded.policy)
    most = loaded.rules.max_running(workload.project, pools)
    return workload if most is None else changed_value(workload, max_running=most)


def _pools(request: m.WorkloadRequest, policy: Policy) -> tuple[str, ...]:
    known = [pool.name for pool in policy.node_pools]
    if DEFAULT_POOL not in known:
        known.append(DEFAULT_POOL)
    for name in request.node_pools:
        if name not in known:
            raise InvalidInput(f"unknown node pool {name!r}{_known(known)}", field="node_pools")
        if request.node_pools.count(name) > 1:
            raise InvalidInput(f"duplicate node pool {name!r}", field="node_pools")
    return tuple(request.node_pools)


def _min_pods(request: m.WorkloadRequest) -> int | None:
    if request.min_pods is not None and not 1 <= request.min_pods <= len(request.pods):
        raise InvalidInput(
            f"min_pods must be 1 to {len(request.pods)}, got {request.min_pods}", field="min_pods"
        )
    return request.min_pods


def _pods(request: m.WorkloadRequest) -> tuple[Pod, ...]:
    """All pods. Most workloads consist of equal pods, so one that differs from the one before only
    in its name is not validated again.
    """
    pods: list[Pod] = []
    tolerations = KERNEL_TOLERATIONS if request.command is None else ()
    before: m.PodRequest | None = None
    for i, pod in enumerate(request.pods):
        if before is not None and replace(before, name=pod.name) == pod:
            pods.append(changed_value(pods[-1], name=pod.name))
        else:
            where = f"pods[{i}]." if len(request.pods) > 1 else ""
            pods.append(_pod(pod, where, tolerations))
        before = pod
    return tuple(pods)


def _pod(pod: m.PodRequest, where: str, tolerations: tuple[tuple[str, str], ...]) -> Pod:
    """One pod. Amounts are parsed here, so `nan`, `-1` and `7e9` are refused before anything
    changes.
    """
    amounts = read_gpu_request(pod.gpu, pod.gpu_memory, pod.gpu_limit, where=where)
    if not 1 <= pod.gpu_devices <= 1024:
        raise InvalidInput(
            f"gpu_devices must be 1 to 1024, got {pod.gpu_devices}", field=f"{where}gpu_devices"
        )
    return Pod(
        name=pod.name,
        gpu=amounts.gpu,
        gpu_memory=amounts.memory,
        gpu_devices=pod.gpu_devices,
        cpu=_amount(read_cpu, pod.cpu, f"{where}cpu"),
        memory=_amount(read_memory, pod.memory, f"{where}memory"),
        group=pod.group,
        node_affinity=tuple(pod.nodes),
        node_selector=dict(pod.node_selector),
        tolerations=tolerations,
        labels=dict(pod.labels),
    )


def _amount(reader: object, value: object, field: str) -> int:
    try:
        # one of the readers of core.model.units
        number: int = reader(value, what=field.rpartition(".")[2])  # type: ignore[operator]
    except InvalidInput as error:
        raise InvalidInput(error.message, field=field) from None
    return number


def share_of(pod: m.PodRequest) -> tuple[m.Share, m.Share]:
    """Request and limit as displayed."""
    amounts = read_gpu_request(pod.gpu, pod.gpu_memory, pod.gpu_limit)
    if amounts.memory is not None:
        return m.Share(gpu_memory_mib=amounts.memory), m.Share(gpu=amounts.limit / MILLI)
    gpu, limit = amounts.gpu * pod.gpu_devices, amounts.limit * pod.gpu_devices
    return m.Share(gpu=gpu / MILLI), m.Share(gpu=max(gpu, limit) / MILLI)
