"""The status of this server: mode, user, scheduler, node agent, presets."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from jupyter_gpushare.client import SchedulerClient
from jupyter_gpushare.messages import (
    SchedulerFrame,
    SchedulerState,
    SchedulerStatus,
    ServiceChanged,
    ServiceStatus,
    Status,
)

from ..clients.agent_client import AgentClient
from ..clients.startup import StartupState
from ..requests.presets import Presets

__all__ = ["ServiceSettings", "StatusService"]


@dataclass(frozen=True, slots=True)
class ServiceSettings:
    """Configuration of the services. `simulated`: the embedded agent is to simulate its GPUs."""

    mode: Literal["embedded", "remote"]
    user: str
    presets: Presets
    simulated: bool = False


class StatusService:
    """Composes the status from the last reports of scheduler and agent."""

    def __init__(
        self,
        scheduler: SchedulerClient,
        agent: AgentClient,
        startup: StartupState,
        settings: ServiceSettings,
    ) -> None:
        self._scheduler, self._agent, self._startup = scheduler, agent, startup
        self._settings = settings
        self.service: ServiceStatus | None = None
        """The scheduler's last report of itself."""

    def apply_frame(self, frame: SchedulerFrame) -> None:
        """One frame of the scheduler's stream."""
        if isinstance(frame, SchedulerState | ServiceChanged):
            self.service = frame.status

    def status(self) -> Status:
        """The status without kernels."""
        welcome, service = self._agent.welcome, self.service
        return Status(
            mode=self._settings.mode,
            simulated=welcome.simulated if welcome is not None else self._settings.simulated,
            scheduler=self._scheduler_status(),
            agent=self._agent_status(),
            node=welcome.node if welcome is not None else None,
            tiers=list(welcome.tiers) if welcome is not None else [],
            tier_problems=dict(welcome.tier_problems) if welcome is not None else {},
            user=self.user_at_scheduler(),
            admin=service.admin if service else False,
            projects=list(service.projects) if service else [],
            node_pools=list(service.node_pools) if service else [],
            priority_classes=list(service.priority_classes) if service else [],
            presets=list(self._settings.presets.offered),
        )

    def _scheduler_status(self) -> SchedulerStatus:
        reachable, service = self._scheduler.reachable, self.service
        problems = self._problems()
        if not problems and not reachable:
            problems = [f"the scheduler {self._why_unreachable()}"]
        return SchedulerStatus(
            reachable=reachable and not self._startup.problem,
            version=service.version if service else None,
            problem="; ".join(problems) or None,
            policy_problems=list(service.policy_problems) if service else [],
        )

    def _problems(self) -> list[str]:
        """Of the startup or the policy, and of the presets."""
        if self._startup.problem:
            problems = [self._startup.problem]
        else:
            problems = list(self.service.policy_problems) if self.service else []
        return (
            [*problems, self._settings.presets.problem]
            if self._settings.presets.problem
            else problems
        )

    def _agent_status(self) -> SchedulerStatus:
        if self._agent.connected.is_set():
            return SchedulerStatus(reachable=True, problem=None)
        problem = (
            self._startup.gateway_text
            or self._startup.problem
            or self._agent.problem
            or f"the node agent of this machine {self._why_unreachable()}"
        )
        return SchedulerStatus(reachable=False, problem=problem)

    def _why_unreachable(self) -> str:
        return "cannot be reached" if self._startup.finished.is_set() else "is starting"

    def user_at_scheduler(self) -> str:
        """The user of this server's requests: the configured one if its token may act for it, else
        the token's. The configured one while the scheduler has not been reached.
        """
        configured = self._settings.user
        if self.service is None:
            return configured
        allowed = self.service.acts_for
        if self._settings.mode == "remote" and (not allowed or {configured, "*"} & set(allowed)):
            return configured
        return self.service.user or configured if not allowed else allowed[0]
