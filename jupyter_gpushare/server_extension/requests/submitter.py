"""Submits, changes and releases the GPU requests of this server's kernels.

A person's request is answered at once or refused (`request`, `release`); a kernelspec's request is
submitted in the background, with retries (`note`, `submit_noted`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from logging import Logger
from time import time_ns
from typing import Final, NamedTuple

from jupyter_gpushare.aio import BackgroundTasks
from jupyter_gpushare.core.model.errors import Conflict, GpuShareError, Unavailable
from jupyter_gpushare.core.model.reason import ReasonCode
from jupyter_gpushare.messages import (
    Event,
    KernelRequest,
    ReasonBody,
    WhatIfAnswer,
    WorkloadRequest,
    stamp,
)

from ..kernels.kernel_entry import KernelEntry
from ..kernels.kernel_registry import KernelRegistry
from ..kernels.request import checked, same
from .share_changes import ShareChanges
from .workload_client import WorkloadClient, retry_backoff

__all__ = ["PreviousRequests", "Submitter"]

PENDING_CODE: Final = "PendingEvaluation"
ON_ITS_WAY: Final = ReasonBody(
    code=PENDING_CODE, message="The request is being sent to the scheduler."
)


class PreviousRequests(NamedTuple):
    """What a kernel requested before its latest request: its share, and a pending change of it."""

    share: KernelRequest | None
    change: KernelRequest | None


class Submitter:
    """`changed` is called with the ids of the kernels that may have changed."""

    def __init__(
        self,
        registry: KernelRegistry,
        workloads: WorkloadClient,
        log: Logger,
        *,
        changed: Callable[[set[str]], None],
    ) -> None:
        self._registry, self._workloads, self._log = registry, workloads, log
        self._changed = changed
        self._submissions = BackgroundTasks(log)
        self._share_changes = ShareChanges(registry, workloads, self._submissions, changed=changed)
        self._submitting: dict[str, asyncio.Task[None]] = {}
        self._noted: dict[str, KernelRequest] = {}
        self._locks: dict[str, asyncio.Lock] = {}

    # ---- requests of a person

    async def request(self, kernel_id: str, request: KernelRequest) -> PreviousRequests:
        """Request a share in place of the current one; returns what was requested before.

        Raises:
            GpuShareError: refused, or the scheduler cannot be reached; nothing was changed.
        """
        checked(request)
        async with self._locks.setdefault(kernel_id, asyncio.Lock()):
            self._stop_submitting(kernel_id)
            entry = self._registry.entry(kernel_id)
            before, current = entry.request, entry.workload
            change = entry.change.request if entry.change is not None else None
            if current is not None and before is not None and same(before, request):
                self._share_changes.cancel(entry)
            elif entry.change is not None and same(entry.change.request, request):
                pass  # already pending
            elif current is not None:
                await self._share_changes.request(entry, current.id, request)
            else:
                await self._submit_first(entry, request)
            return PreviousRequests(before, change)

    async def cancel(self, kernel_id: str) -> None:
        """Cancel what is pending: a change of the share, which stays, or else the first request.

        Raises:
            Conflict: nothing is pending.
        """
        async with self._locks.setdefault(kernel_id, asyncio.Lock()):
            entry = self._registry.entry(kernel_id)
            if entry.change is not None:
                self._share_changes.cancel(entry)
            elif entry.is_waiting:
                await self.release(kernel_id)
            else:
                raise Conflict("nothing to cancel: this notebook has no pending request")

    async def _submit_first(self, entry: KernelEntry, request: KernelRequest) -> None:
        kernel_id, noted, unanswered = entry.kernel_id, entry.request, entry.workload_id
        try:
            wanted = await self._workloads.new(kernel_id, entry.name, request)
            await self._submit(kernel_id, request, wanted)
        except GpuShareError:
            if noted is not None and kernel_id in self._registry:
                self.note(kernel_id, noted)  # the kernelspec's request is still to be submitted
                self.submit_noted(kernel_id)
            raise
        finally:
            if unanswered is not None:  # it may have arrived without its answer
                self._workloads.end_later(unanswered)

    async def release(self, kernel_id: str) -> None:
        """Release the share: acknowledged at once, ended in the background."""
        self._stop_submitting(kernel_id)
        self._end_workloads(self._registry.entry(kernel_id))
        self._changed(self._registry.clear_request(kernel_id))

    def _end_workloads(self, entry: KernelEntry) -> None:
        # The change first: it must not take the place of the current workload.
        if entry.change is not None:
            self._workloads.end_later(entry.change.workload_id)
        if entry.workload_id is not None:
            self._workloads.end_later(entry.workload_id)

    async def what_if(self, kernel_id: str, request: KernelRequest) -> WhatIfAnswer:
        """What the scheduler would do now, with the kernel's current share given up."""
        checked(request)
        entry = self._registry.entry(kernel_id) if kernel_id in self._registry else None
        current = entry.workload if entry is not None else None
        wanted = await self._workloads.new(kernel_id, entry.name if entry else "", request)
        return await self._workloads.what_if(wanted, current.id if current else None)

    async def check(self, request: KernelRequest) -> None:
        """Try the request on any node.

        Raises:
            GpuShareError: the scheduler would refuse it.
        """
        await self._workloads.what_if(self._workloads.for_check(checked(request)))

    # ---- requests of a kernelspec

    def note(self, kernel_id: str, request: KernelRequest) -> None:
        """Submit the request once the kernel runs, so that the launch does not wait for it.

        Until then the kernel has a provisional workload id.
        """
        self._noted[kernel_id] = request
        provisional = self._workloads.fresh_id(kernel_id)
        self._changed(self._registry.set_request(kernel_id, request, provisional, ON_ITS_WAY))

    def submit_noted(self, kernel_id: str) -> None:
        """Submit in the background, with retries while the scheduler or agent is unreachable."""
        request = self._noted.pop(kernel_id, None)
        if request is not None and kernel_id in self._registry:
            work = self._submit_with_retries(kernel_id, request)
            self._submitting[kernel_id] = self._submissions.spawn(work)

    async def _submit_with_retries(self, kernel_id: str, request: KernelRequest) -> None:
        wanted: WorkloadRequest | None = None
        backoff = retry_backoff()
        while kernel_id in self._registry:
            entry = self._registry.entry(kernel_id)
            try:
                # Made once: a submission that may have arrived is repeated with the same id.
                wanted = wanted or await self._workloads.new(kernel_id, entry.name, request)
                await self._submit(kernel_id, request, wanted)
                return
            except Unavailable as error:
                self._show_retry(kernel_id, request, wanted, error)
            except GpuShareError as error:
                self._show_refusal(kernel_id, error)
                return
            await backoff.sleep()

    def _show_retry(
        self,
        kernel_id: str,
        request: KernelRequest,
        wanted: WorkloadRequest | None,
        error: GpuShareError,
    ) -> None:
        if kernel_id not in self._registry:
            return
        known = wanted.id if wanted else self._registry.entry(kernel_id).workload_id
        problem = ReasonBody(
            code=PENDING_CODE, message=f"Not submitted yet: {error.message}. Retrying."
        )
        self._changed(
            self._registry.set_request(
                kernel_id, request, known or self._workloads.fresh_id(kernel_id), problem
            )
        )

    def _show_refusal(self, kernel_id: str, error: GpuShareError) -> None:
        self._log.warning(
            "gpushare: the request of kernel %s was refused: %s", kernel_id, error.message
        )
        problem = ReasonBody(code=_reason_code(error), message=error.message)
        refusal = Event(
            time=stamp(time_ns() // 1_000_000),
            kind="refused",
            message=f"Request refused: {error.message}",
        )
        changed = self._registry.clear_request(kernel_id, problem)
        self._changed(changed | self._registry.add_event(kernel_id, refusal))

    # ---- end of a kernel or of the server

    def kernel_ended(self, kernel_id: str) -> None:
        """The kernel has ended for good: end its workload."""
        if kernel_id not in self._registry:
            return
        self._stop_submitting(kernel_id)
        self._locks.pop(kernel_id, None)
        self._end_workloads(self._registry.entry(kernel_id))
        self._changed(self._registry.remove(kernel_id))

    async def close(self, within: float) -> None:
        """The server ends, and its kernels with it: end all workloads within so many seconds."""
        for kernel_id in self._registry.ids():
            self.kernel_ended(kernel_id)
        await self._submissions.close()
        await self._workloads.close(within)

    # ---- helpers

    async def _submit(
        self, kernel_id: str, request: KernelRequest, wanted: WorkloadRequest
    ) -> None:
        try:
            answer = await self._workloads.submit(wanted)
        except (Unavailable, asyncio.CancelledError):
            # The submission may have arrived without its answer, and would stay unknown here.
            if kernel_id not in self._submitting:
                self._workloads.end_later(wanted.id)
            raise
        if kernel_id not in self._registry:
            self._workloads.end_later(wanted.id)
            return
        changed = self._registry.set_request(kernel_id, request, wanted.id)
        self._changed(changed | self._registry.apply_workload(answer))

    def _stop_submitting(self, kernel_id: str) -> None:
        self._noted.pop(kernel_id, None)
        task = self._submitting.pop(kernel_id, None)
        if task is not None and not task.done():
            task.cancel()


def _reason_code(error: GpuShareError) -> str:
    """A code of the closed set of reasons."""
    if error.code in set(ReasonCode):
        return error.code
    codes = {"project": "UnknownProject", "node_pools": "UnknownPool"}
    return codes.get(error.field or "", "InvalidRequest")
