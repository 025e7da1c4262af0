"""The agent as a whole: composes its parts, starts and stops them, in its own process or inside the
event loop of an embedding one.

Starting finds the kernels of an earlier agent again; stopping leaves them running.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable

from jupyter_gpushare.aio import BackgroundTasks
from jupyter_gpushare.kernel.simnode import now_ms
from jupyter_gpushare.messages import FromAgent, ToKernel, ToServer

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
from .system.pressure import pressure_conditions, read_pressure, recent_conditions

__all__ = ["Agent", "AgentConfig"]

SAMPLE_S = 1.0
SAMPLES_PER_REPORT = 5
JOURNAL_S = 0.05


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
        self.leases = LeaseAssignments(self.node)
        self.process_groups = ProcessGroups(self.node, devices.cgroups)
        self.lifecycle = KernelLifecycle(self.node, self.process_groups)
        self.reconciler = Reconciler(self.node, self.mover, self.leases, self.lifecycle)
        self.socket_server = SocketServer(
            config.socket_path(), lambda: self.handlers, config.tenancy
        )
        self.handlers = MessageHandlers(
            self.node, self.socket_server, self.reconciler, self.lifecycle, self.mover
        )
        self.session = SchedulerSession(self.node, self.leases, link_factory)
        self.journal = AgentJournal(config.state_dir / "agent.journal.json")
        self.batch = BatchRunner(self.node, self.lifecycle, self._keep)
        self.usage = UsageSampler(self.node, self._keep)
        self.session.on_log = self.batch.acknowledged
        self.session.on_usage = self.usage.acknowledged
        self._tasks = BackgroundTasks(log, level=logging.CRITICAL)

    # ---- ports (see AgentPorts) ------------------------------------------------------------------

    def to_kernel(self, kernel_id: str, body: ToKernel) -> bool:
        """Over the kernel's connection."""
        return self.socket_server.to_kernel(kernel_id, body)

    def to_server(self, server: str, body: ToServer) -> bool:
        """Over the server's connection."""
        return self.socket_server.to_server(server, body)

    def to_servers(self, body: ToServer) -> None:
        """Over the connections of all servers."""
        for connection in self.socket_server.servers.values():
            connection.send(body)

    def to_scheduler(self, body: FromAgent) -> bool:
        """Over the link."""
        return self.session.send(body)

    # ---- start and stop --------------------------------------------------------------------------

    async def start(self) -> None:
        """Find the kernels of an earlier agent, listen, and connect to the scheduler. Raises
        GpuShareError when another agent listens on the socket.
        """
        self.config.state_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        for kernel, ident in self.journal.restore(self.node):
            kernel.gate.unsure_until = self.node.clock() + 3 * UNSURE_MS
            self.lifecycle.watch(kernel, ident)
        await self.socket_server.start()
        await self.process_groups.remove_abandoned()
        self.devices.start(self._wake_from_anywhere(asyncio.get_running_loop()))
        self.reconciler.try_step()
        if self.devices.traits.recovers_copies_at_start:
            for kernel in self.node.kernels.values():
                self.mover.recover(kernel)
        self._tasks.spawn(self.reconciler.run(), name="reconciler")
        self._tasks.spawn(self.session.run(), name="session")
        self._tasks.spawn(self._sample(), name="usage")
        self._tasks.spawn(self._write_journal(), name="journal")
        self._tasks.spawn(self.batch.run(), name="batch")
        log.info(
            "node %s: %d %ss, listening on %s",
            self.config.node,
            len(self.node.totals),
            self.devices.traits.label,
            self.config.socket_path(),
        )

    def _wake_from_anywhere(self, loop: asyncio.AbstractEventLoop) -> Callable[[], None]:
        """The threads of the devices may outlive the loop by a moment."""

        def wake() -> None:
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(self.node.wake)

        return wake

    async def stop(self) -> None:
        """Stop everything but the kernels. May be called twice."""
        was_running = len(self._tasks) > 0
        await self.socket_server.stop()
        await self._tasks.close()
        await self.batch.close()
        await self.handlers.close()
        await self.mover.close()
        await self.lifecycle.close()
        await self.process_groups.close()
        if was_running:
            self.journal.write(self.node)
            self.devices.close()

    async def _sample(self) -> None:
        count = 0
        while True:
            await asyncio.sleep(SAMPLE_S)
            self.usage.sample()
            # in a thread: a disk that hangs must not block the agent
            reading = await asyncio.to_thread(read_pressure, self.config.state_dir)
            found = pressure_conditions(reading, self.node.rules.pressure)
            self.node.pressed = recent_conditions(self.node.pressed, found, self.node.clock())
            self.session.report_node()
            count += 1
            if count % SAMPLES_PER_REPORT == 0:
                self.usage.report()

    def _keep(self) -> None:
        self.journal.write(self.node)

    async def _write_journal(self) -> None:
        while True:
            if self.node.dirty:
                self.journal.write(self.node)
            await asyncio.sleep(JOURNAL_S)
