"""Changes a share make-before-break: the current workload ends when the new one is granted."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from jupyter_gpushare.aio import BackgroundTasks
from jupyter_gpushare.core.model.errors import GpuShareError, Unavailable
from jupyter_gpushare.messages import KernelRequest

from ..kernels.kernel_entry import KernelEntry, RequestedChange, lease_of
from ..kernels.kernel_registry import KernelRegistry
from .workload_client import WorkloadClient, retry_backoff

__all__ = ["ShareChanges"]


class ShareChanges:
    """`changed` is called with the ids of the kernels that may have changed."""

    def __init__(
        self,
        registry: KernelRegistry,
        workloads: WorkloadClient,
        tasks: BackgroundTasks,
        *,
        changed: Callable[[set[str]], None],
    ) -> None:
        self._registry, self._workloads = registry, workloads
        self._tasks, self._changed = tasks, changed

    async def request(self, entry: KernelEntry, current_id: str, request: KernelRequest) -> None:
        """Submit a request that replaces the kernel's current workload when it is granted.

        Raises:
            GpuShareError: refused, or no answer; the current workload was not changed.
        """
        kernel_id = entry.kernel_id
        # A change without an answer is withdrawn in the background, and not restored.
        earlier = entry.change if entry.change and entry.change.workload else None
        wanted = await self._workloads.new(kernel_id, entry.name, request, replaces=current_id)
        # Set before the answer: the stream may report the grant first.
        self._registry.set_change(kernel_id, RequestedChange(request, wanted.id))
        try:
            answer = await self._workloads.submit(wanted)
        except (Unavailable, asyncio.CancelledError):
            # It may have arrived without its answer.
            self._tasks.spawn(self._withdraw(kernel_id, wanted.id))
            raise
        except GpuShareError:
            self._registry.set_change(kernel_id, earlier)
            raise
        if self._registry.has_workload(kernel_id, wanted.id):
            self._changed(self._registry.apply_workload(answer))
        else:  # the kernel has ended or was released meanwhile
            self._workloads.end_later(wanted.id)

    def cancel(self, entry: KernelEntry) -> None:
        """Cancel the requested change, if there is one."""
        if entry.change is not None:
            self._workloads.end_later(entry.change.workload_id)
            self._changed(self._registry.set_change(entry.kernel_id, None))

    async def _withdraw(self, kernel_id: str, workload_id: str) -> None:
        """Cancel a change whose submission was not answered, unless it was granted."""
        backoff = retry_backoff()
        while True:
            try:
                answer = await self._workloads.get(workload_id)
                is_current = self._registry.has_workload(kernel_id, workload_id)
                if is_current and answer is not None and lease_of(answer) is not None:
                    self._changed(self._registry.apply_workload(answer))
                    return
                await self._workloads.end(workload_id)
            except GpuShareError:
                await backoff.sleep()
            else:
                self._forget(kernel_id, workload_id)
                return

    def _forget(self, kernel_id: str, workload_id: str) -> None:
        if kernel_id not in self._registry:
            return
        change = self._registry.entry(kernel_id).change
        if change is not None and change.workload_id == workload_id:
            self._changed(self._registry.set_change(kernel_id, None))
