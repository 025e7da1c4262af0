"""What the agent is told of the kernels that run with our provisioner, in the order in which
Jupyter launches, restarts and ends them.

A launch never waits long for the agent; a kernel that starts while it is away is made known when it
comes back.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from logging import Logger
from typing import Final

import msgspec

from jupyter_gpushare.core.model.errors import GpuShareError, Unavailable
from jupyter_gpushare.messages import KernelGone, KernelLaunched, RegisterKernel

from ..clients.agent_client import AgentClient
from . import unregistered

__all__ = ["LAUNCH_S", "KernelLaunches"]

LAUNCH_S: Final = 2.0
"""A kernel's start waits for the agent no longer than this (facts of kernel provisioners: slow
starts look like hangs).
"""
START_S: Final = 10.0
"""The same while the agent inside this server is starting: a demo's first kernel comes with its
first page.
"""
OWN_NAMES: Final = (
    "GPUSHARE_KERNEL_ID",
    "GPUSHARE_AGENT",
    "GPUSHARE_TOKEN_FILE",
    "GPUSHARE_LAUNCH",
)
"""Of one kernel; what else the agent says is the same for all."""


@dataclass(slots=True)
class LaunchedKernel:
    registration: RegisterKernel
    pid: int | None = None
    is_known: bool = False
    """Whether the agent answered its registration."""


class KernelLaunches:
    """`started`: is set when what runs inside this server has started, or will not; `problem`:
    then, why there is no agent at all. `wants_gpu`: whether a kernel has asked for a share by now.
    """

    def __init__(
        self,
        machine: AgentClient,
        log: Logger,
        *,
        started: asyncio.Event,
        wants_gpu: Callable[[str], bool],
        problem: Callable[[], str | None],
    ) -> None:
        self._machine, self._log, self._started, self._wants_gpu, self._problem = (
            machine,
            log,
            started,
            wants_gpu,
            problem,
        )
        self._launched: dict[str, LaunchedKernel] = {}
        self._devices_env: dict[str, str] = {}

    def __contains__(self, kernel_id: object) -> bool:
        """Whether a kernel runs with our provisioner."""
        return kernel_id in self._launched

    async def register(
        self, kernel_id: str, *, name: str, user: str, language: str
    ) -> dict[str, str]:
        """Before a launch: the kernel's environment, the agent's or what we know without it."""
        wants = self._wants_gpu(kernel_id)
        n = self._machine.number()
        message = RegisterKernel(
            n=n, kernel_id=kernel_id, name=name, user=user, wants_gpu=wants, language=language
        )
        launched = self._launched[kernel_id] = LaunchedKernel(message)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(START_S):
                await self._started.wait()
        try:
            env = await self._asked_of_the_agent(message)
        except GpuShareError as error:
            self._log.warning(
                "gpushare: kernel %s starts without a GPU: %s", kernel_id, error.message
            )
            env = unregistered.environment(kernel_id, self._machine.path, self._devices_env)
        else:
            launched.is_known = True
            self._devices_env = {
                name: value for name, value in env.items() if name not in OWN_NAMES
            }
        return {**env, "GPUSHARE_WANTS_GPU": "1"} if wants and env else env

    async def _asked_of_the_agent(self, message: RegisterKernel) -> dict[str, str]:
        problem = self._problem()
        if problem and not self._machine.connected.is_set():
            raise Unavailable(problem)  # nobody is there to wait for
        return await self._machine.register(message, LAUNCH_S)

    def launched(self, kernel_id: str, pid: int) -> bool:
        """After a launch; False: we did not start it."""
        launched = self._launched.get(kernel_id)
        if launched is None:
            return False
        launched.pid = pid
        if launched.is_known:
            self._machine.tell(KernelLaunched(kernel_id=kernel_id, pid=pid))
        else:
            self._register_again(launched)
        return True

    def agent_is_new(self) -> None:
        """It learns again which kernels run."""
        for launched in self._launched.values():
            if launched.pid is not None:
                self._register_again(launched)

    def _register_again(self, launched: LaunchedKernel) -> None:
        """A kernel that runs already: the agent was away when it was launched, or is a new one."""
        wants, n = self._wants_gpu(launched.registration.kernel_id), self._machine.number()
        self._machine.tell(
            msgspec.structs.replace(launched.registration, n=n, pid=launched.pid, wants_gpu=wants)
        )

    def restarting(self, kernel_id: str) -> None:
        """Its process is over, but it comes back at once."""
        self._machine.tell(KernelGone(kernel_id=kernel_id, restarting=True))

    def gone(self, kernel_id: str) -> None:
        """It is over for good."""
        if self._launched.pop(kernel_id, None) is not None:
            self._machine.tell(KernelGone(kernel_id=kernel_id, restarting=False))
