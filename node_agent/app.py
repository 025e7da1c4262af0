"""The agent as a whole: puts the parts together, starts and stops them, in its own process or
inside somebody else's event loop.

Starting finds the kernels of an earlier life again; stopping leaves them alone. Nothing here
decides.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable

from jupyter_gpushare.aio import BackgroundTasks
from jupyter_gpushare.messages import FromAgent, ToKernel, ToServer
from jupyter_gpushare.simnode import now_ms

from .api.message_handlers import UNSURE_MS, MessageHandlers
from .api.scheduler_session import LinkFactory, SchedulerSession
from .devices.base.protocols import Devices
from .reconcile.batch import BatchRunner
from .reconcile.leases import LeaseAssignments
from .reconcile.lifecycle import KernelLifecycle
from .reconcile.memory_mover import MemoryMover
from .reconcile.process_groups import ProcessGroups
from .reconcile.reconciler import Reconciler
from .reconcile.usage_sampler import UsageSampler
from .socket.socket_server import SocketServer
from .state.journal import AgentJournal
from .state.node import AgentConfig, NodeRuntime, log
from .system.pressure import lasting, look, pressed

__all__ = ["Agent", "AgentConfig"]

SAMPLE_S = 1.0
SAMPLES_PER_REPORT = 5


class Agent:
    """One node agent. `link_factory` opens the link to the scheduler; None: without one."""

    def __init__(
        self,
        config: AgentConfig,
        devices: Devices,
        link_factory: LinkFactory | None = None,
        clock: Callable[[], int] = now_ms,
    ) -> None:
        self.config, self.devices = config, devices
        self.node = NodeRuntime(config, devices, self, clock)
        self.mover = MemoryMover(self.node)
        self.leases = LeaseAssignments(self.node, self.mover)
        self.enclosures = ProcessGroups(self.node, devices.cgroups)
        self.lifecycle = KernelLifecycle(self.node, self.enclosures)
        self.desk = Reconciler(self.node, self.mover, self.leases, self.lifecycle)
        self.gate = SocketServer(
            config.socket_path(), lambda: self.talk, for_all=config.users == "all"
        )
        self.talk = MessageHandlers(self.node, self.gate, self.desk, self.lifecycle, self.mover)
        self.session = SchedulerSession(self.node, self.leases, link_factory)
        self.batch = BatchRunner(self.node, self.lifecycle)
        self.session.on_log = self.batch.taken
        self.journal = AgentJournal(config.state_dir / "agent.journal.json")
        self.usage = UsageSampler(self.node, keep=lambda: self.journal.write(self.node))
        self.session.on_usage = self.usage.taken
        self._tasks = BackgroundTasks(log, level=logging.CRITICAL)

    # ---- ports -----------------------------------------------------------------------------------

    def to_kernel(self, kernel_id: str, body: ToKernel) -> bool:
        """To the kernel's line."""
        return self.gate.to_kernel(kernel_id, body)

    def to_server(self, server: str, body: ToServer) -> bool:
        """To the server's line."""
        return self.gate.to_server(server, body)

    def to_servers(self, body: ToServer) -> None:
        """To everybody's line."""
        for line in self.gate.servers.values():
            line.send(body)

    def to_scheduler(self, body: FromAgent) -> bool:
        """To the link."""
        return self.session.send(body)

    # ---- life ------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Find the kernels of an earlier life, listen, and dial the scheduler. Raises GpuShareError
        when another agent is here.
        """
        self.config.state_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        for book, ident in self.journal.restore(self.node):
            book.unsure_until = self.node.clock() + 3 * UNSURE_MS
            self.lifecycle.watch(book, ident)
        await self.gate.start()
        await self.enclosures.tidy()
        self.devices.start(self._wake_from_anywhere(asyncio.get_running_loop()))
        self.desk.try_step()
        if self.devices.traits.recovers_copies_at_start:
            for book in self.node.books.values():
                self.mover.settle(book)
        self._tasks.spawn(self.desk.run(), name="reconciler")
        self._tasks.spawn(self.session.run(), name="session")
        self._tasks.spawn(self._sample(), name="usage")
        self._tasks.spawn(self._keep(), name="journal")
        self._tasks.spawn(self.batch.run(), name="batch")
        log.info(
            "node %s: %d %ss, listening on %s",
            self.config.node,
            len(self.node.totals),
            self.devices.traits.label,
            self.config.socket_path(),
        )

    def _wake_from_anywhere(self, loop: asyncio.AbstractEventLoop) -> Callable[[], None]:
        """The devices' threads may outlive the loop by a moment."""

        def wake() -> None:
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(self.node.wake)

        return wake

    async def stop(self) -> None:
        """Stop everything but the kernels. May be called twice."""
        was_running = len(self._tasks) > 0
        await self.gate.stop()
        await self._tasks.close()
        await self.talk.close()
        await self.mover.close()
        await self.lifecycle.close()
        await self.enclosures.close()
        if was_running:
            self.journal.write(self.node)
            self.devices.close()

    async def _sample(self) -> None:
        count = 0
        while True:
            await asyncio.sleep(SAMPLE_S)
            self.usage.sample()
            vitals = await asyncio.to_thread(
                look, self.config.state_dir
            )  # a disk that hangs must not hold up the agent
            self.node.pressed = lasting(
                self.node.pressed, pressed(vitals, self.node.rules.pressure), self.node.clock()
            )
            self.session.tell_node()
            count += 1
            if count % SAMPLES_PER_REPORT == 0:
                self.usage.report()

    async def _keep(self) -> None:
        while True:
            if self.node.dirty:
                self.journal.write(self.node)
            await asyncio.sleep(0.05)
