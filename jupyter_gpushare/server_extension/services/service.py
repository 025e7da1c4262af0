"""The one object behind this Jupyter server's handlers and provisioner: it folds what scheduler and
agent say, and tells who listens.

It owns the tasks: the agent's line, the scheduler's stream, and a slow look at which kernels
Jupyter still has.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from logging import Logger
from typing import Final, Literal

import msgspec

from jupyter_gpushare.aio import BackgroundTasks
from jupyter_gpushare.client import ConnectionLost
from jupyter_gpushare.core.model.errors import Conflict, GpuShareError, NotFound, Unavailable
from jupyter_gpushare.messages import (
    EndKernel,
    Event,
    Kernel,
    KernelActionDone,
    KernelActionRequest,
    KernelEvent,
    KernelHistory,
    KernelReported,
    KernelRequest,
    QueueHistory,
    Registered,
    RelaunchKernel,
    RelayedRequest,
    SchedulerState,
    ServerWelcome,
    ServiceChanged,
    ServiceStatus,
    Status,
    Table,
    TiersFound,
    ToServer,
    WhatIfAnswer,
)

from ..clients.agent_client import AgentClient
from ..kernels.kernel_history import KernelHistories, wall_ms
from ..kernels.kernel_registry import KernelRegistry
from ..kernels.launches import LAUNCH_S, KernelLaunches
from ..requests.orphans import OrphanedRequests
from ..requests.presets import Presets
from ..requests.submitter import Submitter
from .broadcast import PageStream
from .kernel_rpc import answer
from .notebook_names import NotebookNames
from .protocols import JupyterAPI, SchedulerAPI
from .publisher import Publisher
from .relaunch import end_idle, relaunch
from .status import status_of

__all__ = ["GpuShareService"]

CHECK_S: Final = 1.0
ACT_S: Final = 30.0
NODE_S: Final = 5.0
SWEEP_S: Final = 2.0
Action = Literal["suspend", "resume", "pin", "unpin"]


class GpuShareService:
    def __init__(
        self,
        jupyter: JupyterAPI,
        scheduler: SchedulerAPI,
        agent_socket: str,
        log: Logger,
        *,
        mode: Literal["embedded", "remote"],
        user: str,
        on_behalf: str | None = None,
        simulated: bool = False,
        presets: Presets = Presets(),  # noqa: B008 - frozen
    ) -> None:
        self.mode: Final = mode
        self.user = user
        self.simulated = simulated
        """Whether the GPUs are simulated, as far as is known before the agent has said so."""
        self.presets = presets
        self.broadcast = PageStream()
        self.service: ServiceStatus | None = None
        """What the scheduler said of itself last."""
        self.started = asyncio.Event()
        """Set when what runs inside this server has started, or will not."""
        self.problem: str | None = None
        """Why there is no scheduler or agent here at all."""
        self._jupyter = jupyter
        self._scheduler = scheduler
        self._log = log
        self._directory = KernelRegistry()
        self._machine = AgentClient(agent_socket, log, self._welcomed, self._heard)
        self._histories = KernelHistories()
        self._launches = KernelLaunches(
            self._machine,
            log,
            started=self.started,
            wants_gpu=self._wants_gpu,
            problem=lambda: self.problem,
        )
        self._telling = Publisher(
            self._directory,
            self._histories,
            self.broadcast,
            self._machine,
            jupyter,
            is_ours=self._launches.__contains__,
        )
        self._changed = self._telling.changed
        self._desk = Submitter(
            self._directory, scheduler, log, changed=self._changed, node=self._node, user=on_behalf
        )
        self._ghosts = OrphanedRequests()
        self._naming = NotebookNames(self._directory, scheduler, log)
        self._missing: set[str] = set()
        self._tasks = BackgroundTasks(log)

    # ---- life

    def start(self) -> None:
        """Begin to connect; returns at once."""
        for work in (self._machine.run(), self._follow_scheduler(), self._sweep()):
            self._tasks.spawn(work)

    async def stop(self, within: float = 3.0) -> None:
        """End every task; what is being given back has `within` seconds to get through."""
        await self._naming.stop()
        await self._desk.close(within)
        await self._tasks.close()

    async def _follow_scheduler(self) -> None:
        async for frame in self._scheduler.changes():
            if isinstance(frame, (SchedulerState, ServiceChanged)):
                self.service = frame.status
            if isinstance(frame, ConnectionLost):
                self._log.info("gpushare: the scheduler's stream broke: %s", frame.message)
            else:
                self._ghosts.scheduler_said(frame)
                self._changed(self._directory.scheduler_said(frame))
            self._telling.status(self._status())

    async def _sweep(self) -> None:
        """Which kernels are still there, and how their notebooks are called now: Jupyter calls no
        hook for either.
        """
        while True:
            await self.look()
            self._histories.sample(wall_ms(), self.kernels())
            await self._lay_ghosts()
            self._telling.status(self._status())
            await asyncio.sleep(SWEEP_S)

    async def look(self) -> None:
        """Compare with what Jupyter has."""
        living = set(self._jupyter.kernel_ids())
        missing = {one for one in self._directory.ids() if one not in living}
        # Twice in a row: between its launch and its place in Jupyter's list a kernel is missing for
        # a moment.
        for kernel_id in missing & self._missing:
            self.gone(kernel_id)
        self._missing = missing
        await self._learn_names()

    async def _learn_names(self) -> None:
        with contextlib.suppress(GpuShareError):
            names = await self._jupyter.kernel_names()
            self._changed(
                {
                    k
                    for one in self._jupyter.kernel_ids()
                    for k in self._directory.appeared(one, names.get(one, ""))
                }
            )
            self._naming.tell()

    async def _lay_ghosts(self) -> None:
        """End what a killed server of this machine left waiting."""
        welcome, service = self._machine.welcome, self.service
        if welcome is None or service is None or not self._machine.connected.is_set():
            return
        now = int(asyncio.get_running_loop().time() * 1000)
        suspects = self._ghosts.suspects(
            now, node=welcome.node, user=service.user, living=self._directory.ids()
        )
        if not suspects:
            return
        try:
            known = await self._machine.known_kernels(LAUNCH_S)
        except Unavailable:
            return
        for workload_id in [one for one, kernel_id in suspects.items() if kernel_id not in known]:
            self._log.info("gpushare: %s waits for a kernel that is gone; it is ended", workload_id)
            self._desk.end_later(workload_id)

    # ---- for the handlers

    def status(self) -> Status:
        """Everything a page needs at first."""
        return msgspec.structs.replace(self._status(), kernels=self.kernels())

    def kernels(self) -> list[Kernel]:
        """Every kernel that Jupyter has now."""
        living = self._jupyter.kernel_ids()
        self._changed(
            {
                k
                for one in living
                if one not in self._directory
                for k in self._directory.appeared(one)
            }
        )
        return [self._directory.view(one) for one in living]

    def kernel(self, kernel_id: str) -> Kernel:
        """One of them.

        Raises:
            NotFound: Jupyter has no such kernel.
        """
        self._need(kernel_id)
        return self._directory.view(kernel_id)

    async def request(
        self, kernel_id: str, request: KernelRequest
    ) -> tuple[Kernel, KernelRequest | None]:
        """Ask for a share; the new view, and what was asked before."""
        self._need(kernel_id)
        self._need_ours(kernel_id)
        if not self._directory.entry(kernel_id).name:
            await self._learn_names()  # a new notebook's
        before = await self._desk.request(kernel_id, self.presets.resolved(request))
        return self.kernel(kernel_id), before

    async def release(self, kernel_id: str) -> Kernel:
        """Give the share back."""
        self._need(kernel_id)
        await self._desk.release(kernel_id)
        return self.kernel(kernel_id)

    async def act(self, kernel_id: str, action: Action) -> Kernel:
        """Suspend, resume, pin or unpin."""
        self._need(kernel_id)
        await self._machine.act(
            KernelActionRequest(n=self._machine.number(), kernel_id=kernel_id, action=action), ACT_S
        )
        return self.kernel(kernel_id)

    async def what_if(self, request: KernelRequest, kernel_id: str = "") -> WhatIfAnswer:
        """Would it start now? For one of the kernels: in place of the share that it has."""
        return await self._desk.what_if(kernel_id or "what-if", self.presets.resolved(request))

    async def rows(self, table: str) -> Table:
        """One of the scheduler's tables: queues, nodes, pools, projects, workloads, evictions."""
        ask: Callable[[], Awaitable[Table]] = getattr(self._scheduler, table)
        return await ask()

    async def queue_history(self, pool: str | None, minutes: int) -> QueueHistory:
        """What the queues held and wanted so far back."""
        return await self._scheduler.queue_history(pool, minutes)

    def kernel_history(self, kernel_id: str, minutes: int) -> KernelHistory:
        """What one of the kernels held so far back."""
        return self._histories.of(self.kernel(kernel_id), wall_ms(), minutes)

    # ---- for the provisioner

    async def check(self, request: KernelRequest) -> None:
        """Whether the scheduler would take such a request; one that does not answer quickly is not
        asked.

        Raises:
            GpuShareError: it would refuse it.
        """
        try:
            async with asyncio.timeout(CHECK_S):
                await self._desk.check(request)
        except (TimeoutError, Unavailable):
            return

    async def register(
        self,
        kernel_id: str,
        *,
        name: str,
        language: str,
        request: KernelRequest | None,
        first: bool,
    ) -> dict[str, str]:
        """Before a launch: the kernel's environment."""
        self._directory.appeared(kernel_id, name)
        if request is not None and first:
            self._desk.note(kernel_id, request)
        self._changed({kernel_id})
        env = await self._launches.register(kernel_id, name=name, user=self.user, language=language)
        # A kernel that no agent answers says what is known here of the reason.
        return {**env, "GPUSHARE_PROBLEM": self.problem} if env and self.problem else env

    def remark(self, kernel_id: str, event: Event) -> None:
        """Something that its owner should know, in its story."""
        self._changed(self._directory.happened(kernel_id, event))

    def launched(self, kernel_id: str, pid: int) -> None:
        """After a launch."""
        if self._launches.launched(kernel_id, pid):
            self._telling.outlook(kernel_id, anew=True)
            self._desk.submit_noted(kernel_id)

    def interrupted(self, kernel_id: str) -> None:
        """A signal does not reach Python inside a driver call that waits for saved memory: the
        kernel is brought back for it.
        """
        kernel = self._directory.view(kernel_id) if kernel_id in self._directory else None
        if kernel is not None and kernel.state == "suspended" and kernel.busy:
            self._tasks.spawn(self._bring_back(kernel_id))

    async def _bring_back(self, kernel_id: str) -> None:
        with contextlib.suppress(
            GpuShareError
        ):  # there is no room, or no agent: the agent brings it back when there is
            await self.act(kernel_id, "resume")

    def restarting(self, kernel_id: str) -> None:
        """Its process is over, but it comes back at once."""
        self._launches.restarting(kernel_id)

    def gone(self, kernel_id: str) -> None:
        """It is over for good."""
        self._launches.gone(kernel_id)
        self._desk.kernel_gone(kernel_id)

    # ---- the agent's line

    def _welcomed(self, welcome: ServerWelcome) -> None:
        """At every connection: an agent that was away learns again which kernels run, and what they
        ask.
        """
        self._telling.agent_is_new()
        self._launches.agent_is_new()
        for kernel in welcome.kernels:
            self._directory.agent_said(kernel)
        self._changed(set(self._directory.ids()))
        self._telling.status(self._status())

    def _heard(self, message: ToServer) -> None:
        match message:
            case KernelReported(kernel=kernel):
                self._changed(self._directory.agent_said(kernel))
            case KernelEvent(kernel_id=kernel_id, event=event):
                self._changed(self._directory.happened(kernel_id, event))
            case RelaunchKernel():
                self._tasks.spawn(relaunch(self._jupyter, message, self._log))
            case EndKernel():
                self._tasks.spawn(end_idle(self._jupyter, message, self._log))
            case RelayedRequest():
                self._tasks.spawn(self._answer(message))
            case TiersFound():
                self._telling.status(self._status())
            case Registered() | KernelActionDone() | ServerWelcome():
                pass  # answers that nobody waits for any more

    async def _answer(self, asked: RelayedRequest) -> None:
        self._machine.tell(await answer(self, asked, self._log))

    def _status(self) -> Status:
        """The status without its kernels."""
        return status_of(
            mode=self.mode,
            user=self.user,
            simulated=self.simulated,
            presets=self.presets,
            problem=self.problem,
            has_started=self.started.is_set(),
            service=self.service,
            scheduler_answers=self._scheduler.reachable,
            welcome=self._machine.welcome,
            agent_answers=self._machine.connected.is_set(),
        )

    # ---- parts

    def _need(self, kernel_id: str) -> None:
        if kernel_id not in self._jupyter.kernel_ids():
            raise NotFound(f"there is no kernel {kernel_id}")
        if kernel_id not in self._directory:
            self._changed(self._directory.appeared(kernel_id))

    def _wants_gpu(self, kernel_id: str) -> bool:
        return self._directory.entry(kernel_id).workload_id is not None

    def _need_ours(self, kernel_id: str) -> None:
        if kernel_id not in self._launches:
            raise Conflict(
                f"kernel {kernel_id} was started by another provisioner, so it cannot have a share of a GPU"
            )

    async def _node(self) -> str:
        """This machine's node, as its agent calls it.

        Raises:
            Unavailable: the agent has not said so.
        """
        try:
            async with asyncio.timeout(NODE_S):
                await self._machine.connected.wait()
        except TimeoutError:
            raise Unavailable(
                self.problem or "the node agent of this machine cannot be reached"
            ) from None
        assert self._machine.welcome is not None
        return self._machine.welcome.node
