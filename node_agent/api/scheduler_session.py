"""The link to the scheduler: dialled by the agent, kept up with back-off and jitter, opened with
everything that the agent holds.

Nothing of the node depends on it: while it is down, leases are kept, cells run and memory is shared
as before. A link is anything that can send a body and be iterated for orders; which one (a
WebSocket, an in-process queue) is chosen by whoever starts the agent.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import Final, Protocol

from msgspec import structs

from jupyter_gpushare.aio import Backoff
from jupyter_gpushare.messages import (
    AgentHello,
    DeviceReport,
    FromAgent,
    LeaseRevoked,
    LeaseUpdated,
    LogAcknowledged,
    NodeChangedReport,
    NodeReport,
    Plan,
    ToAgent,
    UsageAcknowledged,
)
from jupyter_gpushare.version import __version__

from ..reconcile.leases import LeaseAssignments
from ..state.kernel_view import lease_report
from ..state.node import NodeRuntime, log

__all__ = ["SchedulerLink", "LinkFactory", "SchedulerSession"]

FIRST_PAUSE_S: Final = 0.2
LONGEST_PAUSE_S: Final = 15.0
SEND_S: Final = 10.0
LONGEST_QUEUE: Final = 10_000
REPEAT_S: Final = 5.0
"""How often a let-go that was not acknowledged is said again."""


class SchedulerLink(Protocol):
    """One connection to the scheduler."""

    async def send(self, body: FromAgent) -> None: ...
    def __aiter__(self) -> AsyncIterator[ToAgent]: ...


MEASURED_MS: Final = 5_000
"""How often people hear how much is used and how busy the GPUs are."""

LinkFactory = Callable[[], AbstractAsyncContextManager[SchedulerLink]]
"""Opens a connection; entering may raise anything, and is tried again."""


class SchedulerSession:
    """Keeps one link up."""

    def __init__(
        self, node: NodeRuntime, leases: LeaseAssignments, link_factory: LinkFactory | None
    ) -> None:
        self._node, self._leases, self._open = node, leases, link_factory
        self._queue: asyncio.Queue[FromAgent] | None = None
        self.connected = asyncio.Event()
        self.on_log: Callable[[LogAcknowledged], None] = lambda _order: None
        self.on_usage: Callable[[UsageAcknowledged], None] = lambda _order: None
        self._told_node: NodeReport | None = None
        self._told_at = 0

    def send(self, body: FromAgent) -> bool:
        """Queue a body; False while the link is down (its state is in the next hello) or hopelessly
        behind.
        """
        if self._queue is None or self._queue.qsize() > LONGEST_QUEUE:
            return False
        self._queue.put_nowait(body)
        return True

    async def run(self) -> None:
        """For ever."""
        backoff = Backoff(FIRST_PAUSE_S, LONGEST_PAUSE_S)
        while self._open is not None:
            begun = asyncio.get_running_loop().time()
            try:
                await self._converse(self._open)
                log.info("the scheduler closed the link")
            except asyncio.CancelledError:
                raise
            except Exception as error:
                log.info("no link to the scheduler: %s", error or type(error).__name__)
            if asyncio.get_running_loop().time() - begun > LONGEST_PAUSE_S:
                backoff.reset()
            await backoff.sleep()

    async def _converse(self, factory: LinkFactory) -> None:
        async with factory() as link:
            await _within(link.send(self._hello()))
            self._queue = asyncio.Queue()
            self._node.forget_reports()
            self.connected.set()
            self._node.wake()
            sending = asyncio.ensure_future(self._send_all(link, self._queue))
            hearing = asyncio.ensure_future(self._hear_all(link))
            try:
                done, _ = await asyncio.wait(
                    {sending, hearing}, return_when=asyncio.FIRST_COMPLETED
                )
                for task in done:
                    task.result()
            finally:
                self._queue = None
                self.connected.clear()
                for task in (sending, hearing):
                    task.cancel()
                await asyncio.gather(sending, hearing, return_exceptions=True)

    def _hello(self) -> AgentHello:
        node, now = self._node, self._node.clock()
        leases = [
            lease_report(kernel, node.uuids, now)
            for kernel in node.kernels.values()
            if kernel.lease is not None and not kernel.assignment.lease_revoked
        ]
        self._told_node, self._told_at = self.node_report(), now
        return AgentHello(version=__version__, node=self._told_node, leases=leases)

    def node_report(self) -> NodeReport:
        """The machine as it is."""
        node = self._node
        tiers, problems = node.devices.capabilities()
        return NodeReport(
            name=node.config.node,
            simulated=node.devices.traits.simulated,
            devices=self._devices(),
            tiers=tiers,
            tier_problems=problems,
            driver=node.devices.driver(),
            reasons=sorted(node.pressed),
            labels=dict(node.config.labels),
            cpu_milli=node.config.cpu_milli,
            memory_mib=node.config.memory_mib,
        )

    def _devices(self) -> list[DeviceReport]:
        """As the devices report them, with the usage by kernels where the devices report none."""
        node, found = self._node, [self._drained(one) for one in self._node.devices.reports()]
        if node.devices.traits.reports_usage:
            return found
        busy: dict[int, float] = {}
        for kernel in node.kernels.values():
            for gpu in kernel.assignment.current_gpus:
                busy[gpu] = min(1.0, busy.get(gpu, 0.0) + (kernel.memory.utilization or 0.0))
        return [
            structs.replace(
                one,
                used_mib=node.used.get(one.index, 0),
                utilization=round(busy.get(one.index, 0.0), 2),
            )
            for one in found
        ]

    def _drained(self, one: DeviceReport) -> DeviceReport:
        """Nothing new is sent to a GPU whose memory does not come free."""
        problem = self._node.draining.problem(one.index, self._node.kernels.values())
        return (
            structs.replace(one, healthy=False, health=problem) if problem and one.healthy else one
        )

    def report_node(self) -> None:
        """Say what changed about the machine: at once when a GPU fell ill or a tier came or went,
        measurements now and then.
        """
        report, now = self.node_report(), self._node.clock()
        told = self._told_node
        if report == told:
            return
        if (
            told is None or _matters(report) != _matters(told) or now - self._told_at >= MEASURED_MS
        ) and self.send(NodeChangedReport(node=report)):
            self._told_node, self._told_at = report, now

    async def _send_all(self, link: SchedulerLink, queue: asyncio.Queue[FromAgent]) -> None:
        while True:
            body: FromAgent | None = None
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(REPEAT_S):
                    body = await queue.get()
            for one in list(self._node.ends.values()) if body is None else [body]:
                await _within(link.send(one))

    async def _hear_all(self, link: SchedulerLink) -> None:
        async for order in link:
            match order:
                case Plan():
                    self._leases.plan(order)
                case LeaseUpdated():
                    self._leases.wanted(order)
                case LeaseRevoked():
                    self._leases.unwanted(order)
                case LogAcknowledged():
                    self.on_log(order)
                case UsageAcknowledged():
                    self.on_usage(order)
            self._node.wake()


async def _within(sending: Awaitable[None]) -> None:
    # Not `wait_for`: before Python 3.12 it can swallow a cancellation that meets the result, and
    # this task would live for ever.
    async with asyncio.timeout(SEND_S):
        await sending


def _matters(report: NodeReport) -> tuple[object, ...]:
    return (
        report.reasons,
        report.tiers,
        report.tier_problems,
        [(one.healthy, one.health) for one in report.devices],
    )
