"""Reports the launches, restarts and ends of this server's kernels to the node agent, in order.

A launch waits briefly for the agent; a kernel that starts while the agent is unreachable is
registered when it connects.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import platform
from collections.abc import Callable
from dataclasses import dataclass
from logging import Logger
from pathlib import Path
from typing import Final

import msgspec
from jupyter_core.paths import jupyter_runtime_dir

from jupyter_gpushare.core.model.errors import GpuShareError, Unavailable
from jupyter_gpushare.messages import (
    KernelEnding,
    KernelGone,
    KernelLaunched,
    KernelRequestState,
    RegisterKernel,
)

from ..clients.agent_client import AgentClient
from ..clients.startup import StartupState
from ..launch.launch_plan import LaunchPlan
from .kernel_registry import KernelRegistry
from .token_files import KernelTokenFiles, hash_of
from .unregistered import unregistered_kernel

__all__ = ["LAUNCH_S", "KernelLaunches"]

LAUNCH_S: Final = 2.0
"""Longest wait of a kernel's start for the agent: a slow start looks like a hang."""
START_S: Final = 10.0
"""The same while the embedded services start: the first kernel often comes with the first page."""
PER_KERNEL_NAMES: Final = (
    "GPUSHARE_KERNEL_ID",
    "GPUSHARE_AGENT",
    "GPUSHARE_TOKEN_FILE",
    "GPUSHARE_LAUNCH",
)
"""Variables of one kernel; the agent's other variables are the same for all kernels."""


@dataclass(slots=True)
class LaunchedKernel:
    registration: RegisterKernel
    pid: int | None = None
    is_known: bool = False
    """Whether the agent has answered the registration of this launch, and its connection has stood
    since then.
    """

    def has_started(self, token_hash: str, launch: str) -> None:
        """What the agent must learn when it finds the kernel running."""
        self.registration = msgspec.structs.replace(
            self.registration, token_hash=token_hash, launch=launch
        )


class KernelLaunches:
    """The kernels that run with our provisioner. `user`: returns the user of their requests at the
    scheduler, as far as it is known.
    """

    def __init__(
        self,
        registry: KernelRegistry,
        agent: AgentClient,
        startup: StartupState,
        log: Logger,
        *,
        user: Callable[[], str],
    ) -> None:
        self._registry, self._agent, self._startup = registry, agent, startup
        self._log, self._user = log, user
        host = Path(jupyter_runtime_dir()) / "gpushare" / platform.node()  # homes may be shared
        self._token_files = KernelTokenFiles(host)
        with contextlib.suppress(OSError):  # said when a kernel starts
            self._token_files.remove_stale()
        self.ends_with_process = False
        """Whether the agent ends the kernels when this process has ended."""
        self._launched: dict[str, LaunchedKernel] = {}
        self._devices_env: dict[str, str] = {}

    @property
    def gateway_text(self) -> str | None:
        """Where to look for the kernels, if a gateway runs them."""
        return self._startup.gateway_text

    def __contains__(self, kernel_id: object) -> bool:
        """Whether a kernel runs with our provisioner."""
        return kernel_id in self._launched

    async def register(
        self, kernel_id: str, *, name: str, language: str, plan: LaunchPlan
    ) -> dict[str, str]:
        """Before a launch: the kernel's environment, from the agent if it answers."""
        request = self._request(kernel_id)
        message = RegisterKernel(
            n=self._agent.next_number(),
            kernel_id=kernel_id,
            name=name,
            user=self._user(),
            request=request,
            language=language,
            gate=plan.gate,
            gate_reason=plan.reason,
            ends_with_server=self.ends_with_process,
        )
        self._launched[kernel_id] = launched = LaunchedKernel(message)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(START_S):
                await self._startup.finished.wait()
        env = await self._environment(launched)
        if not env:
            return {}
        if request is not None and request.pending and not self._agent.missing:
            env["GPUSHARE_WANTS_GPU"] = "1"  # its cells wait for an agent that is away
        if problem := self._problem():  # shown by a kernel that cannot connect to an agent
            env["GPUSHARE_PROBLEM"] = problem
        return env

    async def _environment(self, launched: LaunchedKernel) -> dict[str, str]:
        kernel_id = launched.registration.kernel_id
        try:
            env = await self._register_with_agent(launched)
        except GpuShareError as error:
            level = logging.INFO if self._agent.missing else logging.WARNING
            self._log.log(
                level, "gpushare: kernel %s starts without a GPU: %s", kernel_id, error.message
            )
            if not self._agent.missing and not Path(self._agent.path).parent.is_dir():
                return {}  # no agent ever ran here
            found = unregistered_kernel(
                kernel_id, self._agent.path, self._devices_env, self._token_files
            )
            launched.has_started(found.token_hash, found.launch)
            return found.env
        launched.is_known = True
        self._devices_env = {
            name: value for name, value in env.items() if name not in PER_KERNEL_NAMES
        }
        return env

    async def _register_with_agent(self, launched: LaunchedKernel) -> dict[str, str]:
        """Raises GpuShareError: it starts without the agent."""
        problem, kernel_id = self._problem(), launched.registration.kernel_id
        if problem and not self._agent.connected.is_set():
            raise Unavailable(problem)  # no agent will connect: do not wait for one
        answer = await self._agent.register(launched.registration, LAUNCH_S)
        env, token_hash = dict(answer.env), ""
        if answer.token:
            try:
                path = self._token_files.write(kernel_id, answer.token)
            except OSError as error:
                text = f"the kernel's token cannot be written: {error.strerror}"
                raise Unavailable(text, field=error.filename) from None
            # in a container the socket may have another path than at the agent
            env |= {"GPUSHARE_TOKEN_FILE": str(path), "GPUSHARE_AGENT": self._agent.path}
            token_hash = hash_of(answer.token)
        launched.has_started(token_hash, env.get("GPUSHARE_LAUNCH", ""))
        return env

    def _problem(self) -> str | None:
        """Why there is no agent; None: there is one, or it may be starting."""
        return self._startup.problem or self._agent.problem

    def launched(self, kernel_id: str, pid: int) -> bool:
        """After a launch; False: the kernel was not launched by our provisioner."""
        launched = self._launched.get(kernel_id)
        if launched is None:
            return False
        launched.pid = pid
        if launched.is_known and launched.registration.user == self._user():
            self._agent.send(KernelLaunched(kernel_id=kernel_id, pid=pid))
        else:
            self._register_running(launched)
        return True

    def agent_connected(self) -> None:
        """Register all running kernels: the agent may be a new process. A kernel that is being
        launched follows once it runs.
        """
        for launched in self._launched.values():
            launched.is_known = False
            if launched.pid is not None:
                self._register_running(launched)

    def user_may_have_changed(self) -> None:
        """The scheduler has reported for whom this server may act: kernels that were registered for
        another user before are registered again.
        """
        for launched in self._launched.values():
            if launched.pid is not None and launched.registration.user != self._user():
                self._register_running(launched)

    def _register_running(self, launched: LaunchedKernel) -> None:
        """Register a kernel that runs already."""
        launched.registration = msgspec.structs.replace(launched.registration, user=self._user())
        message = msgspec.structs.replace(
            launched.registration,
            n=self._agent.next_number(),
            pid=launched.pid,
            request=self._request(launched.registration.kernel_id),
        )
        self._agent.send(message)

    def ending(self, kernel_id: str) -> None:
        """Jupyter is about to end the kernel's process."""
        self._agent.send(KernelEnding(kernel_id=kernel_id))

    def restarting(self, kernel_id: str) -> None:
        """The kernel's process has ended; it is launched again at once."""
        self._agent.send(KernelGone(kernel_id=kernel_id, restarting=True))

    def ended(self, kernel_id: str) -> None:
        """The kernel has ended for good."""
        if self._launched.pop(kernel_id, None) is not None:
            with contextlib.suppress(OSError):
                self._token_files.remove(kernel_id)
            self._agent.send(KernelGone(kernel_id=kernel_id, restarting=False))

    def _request(self, kernel_id: str) -> KernelRequestState | None:
        if kernel_id not in self._registry:
            return None
        return self._registry.request_state(kernel_id)
