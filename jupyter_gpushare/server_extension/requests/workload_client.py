"""Workloads of this server's kernels at the scheduler: ids, submission, end with retries."""

from __future__ import annotations

import asyncio
import contextlib
from logging import Logger
from time import time_ns
from typing import Final

import msgspec

from jupyter_gpushare.aio import BackgroundTasks, Backoff
from jupyter_gpushare.client import SchedulerClient
from jupyter_gpushare.core.model.errors import GpuShareError, NotAllowed, NotFound, Unavailable
from jupyter_gpushare.messages import (
    CommandRequest,
    KernelRequest,
    WhatIfAnswer,
    WorkloadRequest,
    WorkloadView,
)

from ..clients.agent_client import AgentClient
from ..clients.startup import StartupState
from ..kernels.request import checked, workload

__all__ = ["WorkloadClient", "retry_backoff"]

FIRST_PAUSE_S: Final = 0.2
LONGEST_PAUSE_S: Final = 5.0
NODE_S: Final = 5.0
"""Longest wait for the agent to report the node's name."""
OWNER_TRIES: Final = 5
"""Attempts to submit for a kernel that, as the scheduler knows it, belongs to another user."""


def retry_backoff() -> Backoff:
    """The pauses between attempts to submit or end a workload."""
    return Backoff(FIRST_PAUSE_S, LONGEST_PAUSE_S)


class WorkloadClient:
    """`user`: the user on whose behalf this server submits; None: the token's user."""

    def __init__(
        self,
        scheduler: SchedulerClient,
        agent: AgentClient,
        startup: StartupState,
        log: Logger,
        *,
        user: str | None,
    ) -> None:
        self._scheduler, self._agent, self._startup = scheduler, agent, startup
        self._log, self._user = log, user
        self._last_number = time_ns() // 1_000_000
        """Starts at the time: a restarted kernel keeps its id, but needs a new workload id."""
        self._endings = BackgroundTasks(log)
        self._is_closed = False

    # ---- making workloads

    def fresh_id(self, kernel_id: str, node: str = "") -> str:
        """An id with the node's name, by which `orphans` finds requests of earlier servers."""
        self._last_number += 1
        return f"{kernel_id}.{node}.{self._last_number}"

    async def new(
        self, kernel_id: str, name: str, request: KernelRequest, *, replaces: str | None = None
    ) -> WorkloadRequest:
        """A workload for a kernel on this machine's node; `replaces`: the kernel's current one.

        Raises:
            Unavailable: the agent has not reported the node's name.
        """
        node = await self._node()
        wanted = workload(
            request,
            self.fresh_id(kernel_id, node),
            kernel_id=kernel_id,
            name=name,
            node=node,
            user=self._user,
        )
        return msgspec.structs.replace(wanted, replaces=replaces)

    async def new_gang(
        self,
        kernel_id: str,
        name: str,
        share: KernelRequest,
        n: int,
        command: CommandRequest,
        *,
        several_nodes: bool,
    ) -> WorkloadRequest:
        """A workload whose `n` pods run a command with this share, on this machine's node or, with
        `several_nodes`, on any.

        Raises:
            Unavailable: the agent has not reported the node's name.
        """
        wanted = await self.new(kernel_id, name, checked(share))
        pod = msgspec.structs.replace(wanted.pods[0], nodes=[]) if several_nodes else wanted.pods[0]
        pods = [msgspec.structs.replace(pod, name=str(i)) for i in range(n)]
        return msgspec.structs.replace(
            wanted, id=f"gang.{wanted.id}", kernel_id=None, pods=pods, min_pods=n, command=command
        )

    def for_check(self, request: KernelRequest) -> WorkloadRequest:
        """A workload on any node, to check a request that names no kernel yet."""
        return workload(
            request, self.fresh_id("check"), kernel_id="check", name="", node="", user=self._user
        )

    async def _node(self) -> str:
        if self._agent.missing:
            raise Unavailable(self._agent.missing)
        try:
            async with asyncio.timeout(NODE_S):
                await self._agent.connected.wait()
        except TimeoutError:
            problem = self._startup.problem or self._agent.problem
            raise Unavailable(
                problem or "the node agent of this machine cannot be reached"
            ) from None
        assert self._agent.welcome is not None
        return self._agent.welcome.node

    # ---- calls

    async def what_if(self, wanted: WorkloadRequest, instead_of: str | None = None) -> WhatIfAnswer:
        """Whether it would start now, with `instead_of` given up. Raises GpuShareError."""
        try:
            return await self._scheduler.what_if(wanted, instead_of)
        except NotAllowed as error:
            return await self._scheduler.what_if(self._as_token_user(wanted, error), instead_of)

    async def submit(self, wanted: WorkloadRequest) -> WorkloadView:
        """Submit it. Raises GpuShareError."""
        backoff, tries = retry_backoff(), OWNER_TRIES
        while True:
            try:
                return await self._submit(wanted)
            except NotAllowed as error:
                if error.field != "kernel_id" or not (tries := tries - 1):
                    raise  # else the agent's report of the kernel's user may be on its way
            await backoff.sleep()

    async def _submit(self, wanted: WorkloadRequest) -> WorkloadView:
        try:
            return await self._scheduler.submit(wanted)
        except NotAllowed as error:
            return await self._scheduler.submit(self._as_token_user(wanted, error))

    def _as_token_user(self, wanted: WorkloadRequest, error: NotAllowed) -> WorkloadRequest:
        """A personal token submits only for its own user, whose name here may be another one."""
        if error.field != "user" or wanted.user is None:
            raise error
        self._user = None
        return msgspec.structs.replace(wanted, user=None)

    async def get(self, workload_id: str) -> WorkloadView | None:
        """The workload; None: it has ended or never reached the scheduler. Raises GpuShareError."""
        try:
            return await self._scheduler.workload(workload_id)
        except NotFound:
            return None

    async def output(self, workload_id: str) -> str:
        """What the command of a workload has printed. Raises GpuShareError."""
        found, cursor = "", 0
        while (logs := await self._scheduler.logs(workload_id, cursor=cursor)).lines:
            cursor, found = logs.cursor, found + "".join(line.text for line in logs.lines)
        return found

    async def end(self, workload_id: str) -> None:
        """End it, also when it never reached the scheduler. Raises GpuShareError."""
        with contextlib.suppress(NotFound):
            await self._scheduler.end(workload_id)

    def end_later(self, workload_id: str) -> None:
        """End it in the background, with retries."""
        if not self._is_closed:  # afterwards the agent ends leases whose kernels have ended
            self._endings.spawn(self._end_with_retries(workload_id))

    async def _end_with_retries(self, workload_id: str) -> None:
        backoff = retry_backoff()
        while True:
            try:
                return await self.end(workload_id)
            except GpuShareError as error:
                self._log.debug("gpushare: cannot end %s yet: %s", workload_id, error.message)
            await backoff.sleep()

    async def wait_ended(self, within: float) -> None:
        """Wait at most so many seconds for pending ends."""
        await self._endings.wait(within)

    async def close(self, within: float) -> None:
        """Allow `within` seconds for pending ends; the agent ends the remaining leases."""
        self._is_closed = True
        await self._endings.wait(within)
        await self._endings.close()
