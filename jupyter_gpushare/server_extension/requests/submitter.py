"""Requests of this server's kernels on their way to the scheduler: submitted, replaced, given back;
retried until acknowledged.

What a person asks is answered at once or refused (`request`, `release`); what a kernelspec asks is
carried out in the background (`note`, `submit_noted`), and what has to be ended is ended however
long that takes (`end_later`).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from logging import Logger
from time import time_ns
from typing import Final, Protocol

import msgspec

from jupyter_gpushare.aio import BackgroundTasks, Backoff
from jupyter_gpushare.core.model.errors import GpuShareError, NotAllowed, NotFound, Unavailable
from jupyter_gpushare.messages import (
    Event,
    KernelRequest,
    ReasonBody,
    WhatIfAnswer,
    WorkloadRequest,
    WorkloadView,
    stamp,
)

from ..kernels.kernel_registry import KernelRegistry
from ..kernels.request import checked, same, workload

__all__ = ["Submitter", "WorkloadAPI"]

FIRST_PAUSE_S: Final = 0.2
LONGEST_PAUSE_S: Final = 5.0
ON_ITS_WAY: Final = ReasonBody(
    code="PendingEvaluation", message="The request is on its way to the scheduler."
)


class WorkloadAPI(Protocol):
    """What the desk needs of the scheduler."""

    async def submit(self, request: WorkloadRequest) -> WorkloadView: ...
    async def end(self, workload_id: str) -> object: ...
    async def what_if(
        self, request: WorkloadRequest, instead_of: str | None = None
    ) -> WhatIfAnswer: ...


class Submitter:
    """`changed` is told which kernels look different now; `node` gives this machine's node once the
    agent named it.
    """

    def __init__(
        self,
        directory: KernelRegistry,
        scheduler: WorkloadAPI,
        log: Logger,
        *,
        changed: Callable[[set[str]], None],
        node: Callable[[], Awaitable[str]],
        user: str | None,
    ) -> None:
        self._directory = directory
        self._scheduler = scheduler
        self._log = log
        self._changed = changed
        self._node = node
        self._user = user
        self._numbers = time_ns() // 1_000_000
        """Ids must differ from those of an earlier life of this server: kernels get fresh ids, but
        a restarted kernel keeps its own.
        """
        self._tasks = BackgroundTasks(log)
        self._noted: dict[str, KernelRequest] = {}
        self._submitting: dict[str, asyncio.Task[None]] = {}
        self._locks: dict[str, asyncio.Lock] = {}
        self._closed = False

    # ---- what a person asks

    async def request(self, kernel_id: str, request: KernelRequest) -> KernelRequest | None:
        """Ask for a share, in place of the one it has; what was asked before is returned.

        Raises:
            GpuShareError: refused, or the scheduler cannot be reached; then nothing was changed.
        """
        checked(request)
        async with self._locks.setdefault(kernel_id, asyncio.Lock()):
            self._stop_submitting(kernel_id)
            entry = self._directory.entry(kernel_id)
            before, old_id = entry.asked, entry.workload_id
            if entry.workload is not None and before is not None and same(before, request):
                return before
            wanted = await self._workload(kernel_id, request)
            if old_id is not None:
                # First asked without effect: a request that is refused must not cost the share that
                # is held.
                await self._would(wanted)
                await self._end(old_id)
            try:
                await self._submit(kernel_id, request, wanted)
            except GpuShareError:
                self._changed(self._directory.asks_nothing(kernel_id))
                raise
            return before

    async def _end(self, workload_id: str) -> None:
        with contextlib.suppress(NotFound):  # it never got there
            await self._scheduler.end(workload_id)

    async def release(self, kernel_id: str) -> None:
        """Give the share back. Acknowledged at once, carried out however long that takes."""
        entry = self._directory.entry(kernel_id)
        self._stop_submitting(kernel_id)
        if entry.workload_id is not None:
            self.end_later(entry.workload_id)
        self._changed(self._directory.asks_nothing(kernel_id))

    async def what_if(self, kernel_id: str, request: KernelRequest) -> WhatIfAnswer:
        """What the scheduler would do now; of a kernel that has a share: if it gave that up for
        this one, as a request does.
        """
        checked(request)
        held = self._directory.entry(kernel_id).workload if kernel_id in self._directory else None
        return await self._would(
            await self._workload(kernel_id, request), held.id if held else None
        )

    async def check(self, request: KernelRequest) -> None:
        """Ask without effect; where the kernel would run does not matter.

        Raises:
            GpuShareError: the scheduler would refuse it.
        """
        asked = checked(request)
        await self._would(
            workload(
                asked, self._fresh_id("check"), kernel_id="check", name="", node="", user=self._user
            )
        )

    # ---- what a kernelspec asks

    def note(self, kernel_id: str, request: KernelRequest) -> None:
        """It will be asked for once its kernel runs: deciding and committing would only hold up the
        launch. Until then the id is a stand-in.
        """
        self._noted[kernel_id] = request
        self._changed(
            self._directory.asks(kernel_id, request, self._fresh_id(kernel_id), ON_ITS_WAY)
        )

    def submit_noted(self, kernel_id: str) -> None:
        """Ask in the background, again and again while the scheduler or the agent is away."""
        request = self._noted.pop(kernel_id, None)
        if request is not None and kernel_id in self._directory:
            self._submitting[kernel_id] = self._tasks.spawn(
                self._keep_submitting(kernel_id, request)
            )

    async def _keep_submitting(self, kernel_id: str, request: KernelRequest) -> None:
        backoff, wanted = Backoff(FIRST_PAUSE_S, LONGEST_PAUSE_S), None
        while kernel_id in self._directory:
            try:
                # Made once: what may have arrived already is sent again with the same id.
                wanted = wanted or await self._workload(kernel_id, request)
                await self._submit(kernel_id, request, wanted)
                return
            except Unavailable as error:
                problem = ReasonBody(
                    code="PendingEvaluation",
                    message=f"Not asked yet: {error.message}; this is tried again by itself.",
                )
                known = (
                    wanted.id
                    if wanted
                    else self._directory.entry(kernel_id).workload_id or self._fresh_id(kernel_id)
                )
                self._changed(self._directory.asks(kernel_id, request, known, problem))
            except GpuShareError as error:
                self._refused(kernel_id, error)
                return
            await backoff.sleep()

    def _refused(self, kernel_id: str, error: GpuShareError) -> None:
        self._log.warning(
            "gpushare: the request of kernel %s was refused: %s", kernel_id, error.message
        )
        problem = ReasonBody(code=_reason_code(error), message=error.message)
        refusal = Event(
            time=stamp(time_ns() // 1_000_000),
            kind="refused",
            message=f"The request was refused: {error.message}",
        )
        self._changed(
            self._directory.asks_nothing(kernel_id, problem)
            | self._directory.happened(kernel_id, refusal)
        )

    # ---- the end

    def kernel_gone(self, kernel_id: str) -> None:
        """Its kernel is over for good."""
        if kernel_id not in self._directory:
            return
        workload_id = self._directory.entry(kernel_id).workload_id
        self._stop_submitting(kernel_id)
        self._locks.pop(kernel_id, None)
        self._changed(self._directory.left(kernel_id))
        if workload_id is not None:
            self.end_later(workload_id)

    def end_later(self, workload_id: str) -> None:
        """End it, however long that takes."""
        if not self._closed:  # after that the agent's watch over the kernels does it
            self._tasks.spawn(self._keep_ending(workload_id))

    async def _keep_ending(self, workload_id: str) -> None:
        backoff = Backoff(FIRST_PAUSE_S, LONGEST_PAUSE_S)
        while True:
            try:
                await self._end(workload_id)
                return
            except GpuShareError as error:
                self._log.debug("gpushare: giving %s back: %s", workload_id, error.message)
            await backoff.sleep()

    async def close(self, within: float) -> None:
        """The server ends, and its kernels with it: give everything back, for so long; the agent's
        watch over the kernels ends the rest.
        """
        for kernel_id in self._directory.ids():
            self.kernel_gone(kernel_id)
        self._closed = True
        await self._tasks.wait(timeout_s=within)
        await self._tasks.close()

    # ---- parts

    async def _would(self, wanted: WorkloadRequest, instead_of: str | None = None) -> WhatIfAnswer:
        try:
            return await self._scheduler.what_if(wanted, instead_of)
        except NotAllowed as error:
            return await self._scheduler.what_if(self._in_own_name(wanted, error), instead_of)

    async def _take(self, wanted: WorkloadRequest) -> WorkloadView:
        try:
            return await self._scheduler.submit(wanted)
        except NotAllowed as error:
            return await self._scheduler.submit(self._in_own_name(wanted, error))

    def _in_own_name(self, wanted: WorkloadRequest, error: NotAllowed) -> WorkloadRequest:
        """A person's token speaks for that person only, however they are called on this machine."""
        if error.field != "user" or wanted.user is None:
            raise error
        self._user = None
        return msgspec.structs.replace(wanted, user=None)

    async def _submit(
        self, kernel_id: str, request: KernelRequest, wanted: WorkloadRequest
    ) -> None:
        try:
            answer = await self._take(wanted)
        except (Unavailable, asyncio.CancelledError):
            # It may have arrived all the same; nobody here would know of it.
            if kernel_id not in self._submitting:
                self.end_later(wanted.id)
            raise
        if kernel_id not in self._directory:
            self.end_later(wanted.id)
            return
        changed = self._directory.asks(kernel_id, request, wanted.id)
        self._changed(changed | self._directory.workload_answered(answer))

    async def _workload(self, kernel_id: str, request: KernelRequest) -> WorkloadRequest:
        node = await self._node()
        name = self._directory.entry(kernel_id).name if kernel_id in self._directory else ""
        return workload(
            request,
            self._fresh_id(kernel_id, node),
            kernel_id=kernel_id,
            name=name,
            node=node,
            user=self._user,
        )

    def _fresh_id(self, kernel_id: str, node: str = "") -> str:
        """The node is in it, so that a later server of the same machine sees what an earlier one
        left (`ghosts`).
        """
        self._numbers += 1
        return f"{kernel_id}.{node}.{self._numbers}"

    def _stop_submitting(self, kernel_id: str) -> None:
        self._noted.pop(kernel_id, None)
        task = self._submitting.pop(kernel_id, None)
        if task is not None and not task.done():
            task.cancel()


def _reason_code(error: GpuShareError) -> str:
    """Of the closed set of reasons; what has none of its own is an invalid request."""
    return {"project": "UnknownProject", "node_pools": "UnknownPool"}.get(
        error.field or "", "InvalidRequest"
    )
