"""Keeps the names of kernels up to date: a notebook may be renamed at any time.

Jupyter has no event for it, so its sessions are read regularly; new names are sent to the
scheduler, whose tables show them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from logging import Logger

from jupyter_gpushare.aio import BackgroundTasks
from jupyter_gpushare.client import SchedulerClient
from jupyter_gpushare.core.model.errors import GpuShareError, NotFound, Unavailable

from ..clients.jupyter_server import JupyterServer
from ..kernels.kernel_registry import KernelRegistry

__all__ = ["NotebookNames"]


class NotebookNames:
    """`changed` is called with the ids of the kernels that may have changed."""

    def __init__(
        self,
        registry: KernelRegistry,
        jupyter: JupyterServer,
        scheduler: SchedulerClient,
        log: Logger,
        *,
        changed: Callable[[set[str]], None],
    ) -> None:
        self._registry, self._jupyter, self._scheduler = registry, jupyter, scheduler
        self._log, self._changed = log, changed
        self._sent: dict[str, str] = {}
        """Workload id -> the last name that was accepted or refused; it is not sent again."""
        self._tasks = BackgroundTasks(log)

    async def refresh(self) -> None:
        """Read the names from Jupyter and send new ones to the scheduler in the background."""
        names = await self._jupyter.kernel_names()
        changed: set[str] = set()
        for kernel_id in self._jupyter.kernel_ids():
            changed |= self._registry.add(kernel_id, names.get(kernel_id, ""))
        self._changed(changed)
        self.send()

    def send(self) -> None:
        """Send the names that the scheduler does not know, unless that is under way."""
        names = dict(self._unsent())
        current = self._workload_ids()
        self._sent = {id_: name for id_, name in self._sent.items() if id_ in current}
        if names and not self._tasks:
            self._tasks.spawn(self._send(names))

    async def stop(self) -> None:
        """Cancel what is being sent; the next request of the kernel has the name as well."""
        await self._tasks.close()

    def _workload_ids(self) -> set[str | None]:
        return {self._registry.entry(kernel_id).workload_id for kernel_id in self._registry.ids()}

    def _unsent(self) -> Iterable[tuple[str, str]]:
        for kernel_id in self._registry.ids():
            entry = self._registry.entry(kernel_id)
            workload, name = entry.workload, entry.name
            if workload is None or not name:
                continue
            if name not in (workload.name, self._sent.get(workload.id)):
                yield workload.id, name

    async def _send(self, names: dict[str, str]) -> None:
        for workload_id, name in names.items():
            try:
                await self._scheduler.rename(workload_id, name)
            except Unavailable:
                return  # sent again at the next refresh
            except NotFound:
                pass  # it has just ended, or the scheduler is too old to rename
            except GpuShareError as error:
                self._log.warning(
                    "gpushare: cannot rename %s to %r: %s", workload_id, name, error.message
                )
            self._sent[workload_id] = name
