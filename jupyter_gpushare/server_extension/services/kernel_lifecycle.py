"""What the kernel provisioner reports: launches, interrupts, restarts and ends of kernels."""

from __future__ import annotations

import contextlib

from jupyter_gpushare.aio import BackgroundTasks
from jupyter_gpushare.core.model.errors import GpuShareError
from jupyter_gpushare.messages import Event, KernelRequest

from ..kernels.kernel_registry import KernelRegistry
from ..kernels.launches import KernelLaunches
from ..launch.launch_plan import LaunchPlan
from ..requests.submitter import Submitter
from .gang_service import GangService
from .publisher import Publisher
from .request_service import RequestService

__all__ = ["ServerKernelLifecycle"]


class ServerKernelLifecycle:
    """Called in the order in which Jupyter calls the provisioner."""

    def __init__(
        self,
        registry: KernelRegistry,
        launches: KernelLaunches,
        submitter: Submitter,
        requests: RequestService,
        gangs: GangService,
        publisher: Publisher,
        tasks: BackgroundTasks,
    ) -> None:
        self._registry, self._launches, self._submitter = registry, launches, submitter
        self._requests, self._gangs = requests, gangs
        self._publisher, self._tasks = publisher, tasks

    async def register(
        self,
        kernel_id: str,
        *,
        name: str,
        language: str,
        plan: LaunchPlan,
        request: KernelRequest | None,
    ) -> dict[str, str]:
        """Before a launch: the kernel's environment. `request`: the kernelspec's, if any."""
        self._registry.add(kernel_id, name)
        if request is not None:
            self._submitter.note(kernel_id, request)
        self._publisher.changed({kernel_id})
        return await self._launches.register(kernel_id, name=name, language=language, plan=plan)

    async def check(self, request: KernelRequest) -> KernelRequest:
        """See `RequestService.check`."""
        return await self._requests.check(request)

    def submit(self, kernel_id: str) -> None:
        """Submit the kernelspec's request before the launch."""
        self._publisher.request_state(kernel_id, again=True)
        self._submitter.submit_noted(kernel_id)

    def add_event(self, kernel_id: str, event: Event) -> None:
        """Add an event to the kernel's history."""
        self._publisher.changed(self._registry.add_event(kernel_id, event))

    def launched(self, kernel_id: str, pid: int) -> None:
        """After a launch."""
        if self._launches.launched(kernel_id, pid):
            self._publisher.request_state(kernel_id, again=True)
            self._submitter.submit_noted(kernel_id)

    def interrupted(self, kernel_id: str) -> None:
        """Resume a suspended kernel that runs a cell.

        A signal does not reach Python inside a driver call that waits for saved GPU memory.
        """
        if kernel_id not in self._registry:
            return
        kernel = self._registry.view(kernel_id)
        if kernel.state == "suspended" and kernel.busy:
            self._tasks.spawn(self._resume(kernel_id))

    async def _resume(self, kernel_id: str) -> None:
        # Without room or an agent, the agent resumes it as soon as it can.
        with contextlib.suppress(GpuShareError):
            await self._requests.act(kernel_id, "resume")

    def ending(self, kernel_id: str) -> None:
        """Jupyter is about to end the kernel's process, for a shutdown or a restart."""
        self._launches.ending(kernel_id)

    def restarting(self, kernel_id: str) -> None:
        """The kernel's process has ended; it is launched again at once."""
        self._gangs.process_ended(kernel_id)
        self._launches.restarting(kernel_id)

    def is_ungated(self, kernel_id: str) -> bool:
        """Whether its process runs, or ran, and does not ask before its cells."""
        return (
            kernel_id in self._registry and self._registry.view(kernel_id).gate_problem is not None
        )

    def ended(self, kernel_id: str) -> None:
        """The kernel has ended for good."""
        self._gangs.process_ended(kernel_id)
        self._launches.ended(kernel_id)
        self._submitter.kernel_ended(kernel_id)
