"""Tells the scheduler what notebooks are called now, so that its tables and everybody else's pages
show the name of today.
"""

from __future__ import annotations

from collections.abc import Iterable
from logging import Logger
from typing import Protocol

from jupyter_gpushare.aio import BackgroundTasks
from jupyter_gpushare.core.model.errors import GpuShareError, NotFound, Unavailable
from jupyter_gpushare.messages import WorkloadView

from ..kernels.kernel_registry import KernelRegistry

__all__ = ["NotebookNames", "RenameAPI"]


class RenameAPI(Protocol):
    """What this needs of the scheduler."""

    async def rename(self, workload_id: str, name: str) -> WorkloadView: ...


class NotebookNames:
    """`tell` is called again and again; it says only what the scheduler does not know, and does not
    wait for its answer.
    """

    def __init__(self, directory: KernelRegistry, scheduler: RenameAPI, log: Logger) -> None:
        self._directory, self._scheduler, self._log = directory, scheduler, log
        self._told: dict[str, str] = {}
        """Workload -> the name that was taken, or refused: neither is said again."""
        self._tasks = BackgroundTasks(log)

    def tell(self) -> None:
        """Starts telling, unless that is under way."""
        news = dict(self._news())
        self._told = {id_: name for id_, name in self._told.items() if id_ in self._asked()}
        if news and not self._tasks:
            self._tasks.spawn(self._tell(news))

    async def stop(self) -> None:
        """What is not told by now is told by the next request."""
        await self._tasks.close()

    def _asked(self) -> set[str]:
        return {
            id_
            for kernel in self._directory.ids()
            if (id_ := self._directory.entry(kernel).workload_id) is not None
        }

    def _news(self) -> Iterable[tuple[str, str]]:
        for kernel in self._directory.ids():
            entry = self._directory.entry(kernel)
            workload, name = entry.workload, entry.name
            if (
                workload is not None
                and name
                and name not in (workload.name, self._told.get(workload.id))
            ):
                yield workload.id, name

    async def _tell(self, news: dict[str, str]) -> None:
        for workload, name in news.items():
            try:
                await self._scheduler.rename(workload, name)
            except Unavailable:
                return  # said again at the next look
            except NotFound:
                pass  # it has just ended, or the scheduler is older than renaming
            except GpuShareError as error:
                self._log.warning(
                    "gpushare: the scheduler does not call %s %r: %s", workload, name, error.message
                )
            self._told[workload] = name
