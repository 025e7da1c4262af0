"""How things stand, in one `Status`: what the scheduler and the agent last said of themselves, and
whether they still answer. Pure.
"""

from __future__ import annotations

from typing import Literal

from jupyter_gpushare.messages import SchedulerStatus, ServerWelcome, ServiceStatus, Status

from ..requests.presets import Presets

__all__ = ["status_of"]


def status_of(
    *,
    mode: Literal["embedded", "remote"],
    user: str,
    simulated: bool,
    presets: Presets,
    problem: str | None,
    has_started: bool,
    service: ServiceStatus | None,
    scheduler_answers: bool,
    welcome: ServerWelcome | None,
    agent_answers: bool,
) -> Status:
    """Without kernels. `problem`: why there is no scheduler or agent here at all; None: there are,
    as far as is known.
    """
    problems = [problem] if problem else list(service.policy_problems) if service else []
    problems += [presets.problem] if presets.problem else []
    away = "cannot be reached" if has_started else "is starting"
    return Status(
        mode=mode,
        simulated=welcome.simulated if welcome is not None else simulated,
        scheduler=SchedulerStatus(
            reachable=scheduler_answers and not problem,
            version=service.version if service else None,
            problem="; ".join(problems) or (None if scheduler_answers else f"the scheduler {away}"),
        ),
        agent=SchedulerStatus(
            reachable=agent_answers,
            problem=None if agent_answers else problem or f"the node agent of this machine {away}",
        ),
        node=welcome.node if welcome is not None else None,
        tiers=list(welcome.tiers) if welcome is not None else [],
        tier_problems=dict(welcome.tier_problems) if welcome is not None else {},
        user=user if mode == "remote" or service is None or not service.user else service.user,
        projects=list(service.projects) if service else [],
        node_pools=list(service.node_pools) if service else [],
        priority_classes=list(service.priority_classes) if service else [],
        presets=list(presets.offered),
    )
