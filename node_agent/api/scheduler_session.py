"""The link to the scheduler: opened by the agent, reopened with back-off and jitter. The first
message contains all leases that the agent has.

Nothing on the node depends on it: while it is down, leases are kept, cells run and memory is shared
as before. A link is anything that can send a message and be iterated for messages; the composition
root chooses between a WebSocket and an in-process queue.
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
    LeaseReport,
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
from ..system.host_memory import room_for_images
from ..system.host_usage import HostUsage, HostUsageReader

__all__ = ["LinkFactory", "SchedulerLink", "SchedulerSession"]

FIRST_PAUSE_S: Final = 0.2
LONGEST_PAUSE_S: Final = 15.0
SEND_TIMEOUT_S: Final = 10.0
LONGEST_QUEUE: Final = 10_000
REPEAT_S: Final = 5.0
"""How often a released lease that was not acknowledged is reported again."""
MEASURED_MS: Final = 5_000
"""How often memory in use and utilization of the GPUs are reported."""


class SchedulerLink(Protocol):
    """One connection to the scheduler."""

    async def send(self, body: FromAgent) -> None: ...
    def __aiter__(self) -> AsyncIterator[ToAgent]: ...


LinkFactory = Callable[[], AbstractAsyncContextManager[SchedulerLink]]
"""Opens a connection; entering may raise anything, and is tried again."""


class SchedulerSession:
    """Keeps one link open."""

    def __init__(
        self, node: NodeRuntime, leases: LeaseAssignments, link_factory: LinkFactory | None
    ) -> None:
        self._node, self._leases, self._open = node, leases, link_factory
        self._queue: asyncio.Queue[FromAgent] | None = None
        self.connected = asyncio.Event()
        self.on_log: Callable[[LogAcknowledged], None] = lambda _body: None
        self.on_usage: Callable[[UsageAcknowledged], None] = lambda _body: None
        self._sent_report: NodeReport | None = None
        self._sent_at = 0
        self._host = HostUsageReader(node.clock)

    def send(self, body: FromAgent) -> bool:
        """Queue a message; False while the link is down (the next hello has the state) or far
        behind.
        """
        if self._queue is None or self._queue.qsize() > LONGEST_QUEUE:
            return False
        self._queue.put_nowait(body)
        return True

    async def run(self) -> None:
        """Run forever."""
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
            await _with_timeout(link.send(self._hello()))
            self._queue = asyncio.Queue()
            for kernel in self._node.kernels.values():
                kernel.published.report = None  # all leases are reported again
                kernel.turn.sent = None
            self.connected.set()
            self._node.wake()
            sending = asyncio.ensure_future(self._send_all(link, self._queue))
            receiving = asyncio.ensure_future(self._receive_all(link))
            try:
                done, _ = await asyncio.wait(
                    {sending, receiving}, return_when=asyncio.FIRST_COMPLETED
                )
                for task in done:
                    task.result()
            finally:
                self._queue = None
                self.connected.clear()
                for task in (sending, receiving):
                    task.cancel()
                await asyncio.gather(sending, receiving, return_exceptions=True)

    async def _send_all(self, link: SchedulerLink, queue: asyncio.Queue[FromAgent]) -> None:
        while True:
            body: FromAgent | None = None
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(REPEAT_S):
                    body = await queue.get()
            bodies = [body] if body is not None else list(self._node.unacknowledged.values())
            for one in bodies:
                await _with_timeout(link.send(one))

    async def _receive_all(self, link: SchedulerLink) -> None:
        async for body in link:
            match body:
                case Plan():
                    self._leases.apply_plan(body)
                case LeaseUpdated():
                    self._leases.lease_updated(body)
                case LeaseRevoked():
                    self._leases.lease_revoked(body)
                case LogAcknowledged():
                    self.on_log(body)
                case UsageAcknowledged():
                    self.on_usage(body)
            self._node.wake()

    # ---- reports ---------------------------------------------------------------------------------

    def _hello(self) -> AgentHello:
        self._sent_report, self._sent_at = self.node_report(), self._node.clock()
        return AgentHello(
            version=__version__,
            node=self._sent_report,
            leases=self._lease_reports(),
            kernels=[self._node.owner(kernel) for kernel in self._node.registered()],
        )

    def _lease_reports(self) -> list[LeaseReport]:
        node, now = self._node, self._node.clock()
        active = [one for one in node.kernels.values() if one.assignment.active_lease is not None]
        return [lease_report(kernel, node.uuids, now) for kernel in active]

    def node_report(self) -> NodeReport:
        """The node at this moment."""
        node, host = self._node, self._host.read()
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
            host_cpu=host.cpu,
            host_memory_mib=None if host.memory is None else host.memory.total,
            host_used_mib=host.used_mib,
            saved_mib=sum(one.memory.saved_mib for one in node.kernels.values()),
            saved_left_mib=self._left_for_images(host),
        )

    def _left_for_images(self, host: HostUsage) -> int | None:
        node = self._node
        memories = [kernel.memory for kernel in node.kernels.values()]
        return room_for_images(
            sum(memory.saved_mib for memory in memories),
            sum(memory.reserved_mib for memory in memories),
            node.config.host_memory_mib,
            host.memory if node.devices.traits.images_use_host_memory else None,
            node.config.host_reserve_mib,
        )

    def _devices(self) -> list[DeviceReport]:
        """As the devices report them, with the usage by kernels where the devices report none."""
        node = self._node
        found = [self._with_draining(device) for device in node.devices.reports()]
        if node.devices.traits.reports_usage:
            return found
        busy: dict[int, float] = {}
        for kernel in node.kernels.values():
            for gpu in kernel.assignment.current_gpus:
                busy[gpu] = min(1.0, busy.get(gpu, 0.0) + (kernel.memory.utilization or 0.0))
        return [self._with_usage(device, busy.get(device.index, 0.0)) for device in found]

    def _with_usage(self, device: DeviceReport, busy: float) -> DeviceReport:
        temperature, power = self._node.devices.sensors(device.index, busy)
        return structs.replace(
            device,
            used_mib=self._node.used.get(device.index, 0),
            utilization=round(busy, 2),
            temperature_c=temperature,
            power_w=power,
        )

    def _with_draining(self, device: DeviceReport) -> DeviceReport:
        """A GPU whose memory is not freed takes no new work."""
        problem = self._node.draining.problem(device.index, self._node.kernels.values())
        if not problem or not device.healthy:
            return device
        return structs.replace(device, healthy=False, health=problem)

    def report_node(self) -> None:
        """Report what changed about the node: at once when the health of a GPU or a tier changed,
        measurements now and then.
        """
        report, now, sent = self.node_report(), self._node.clock(), self._sent_report
        if report == sent:
            return
        is_urgent = sent is None or _urgent_part(report) != _urgent_part(sent)
        if not is_urgent and now - self._sent_at < MEASURED_MS:
            return
        if self.send(NodeChangedReport(node=report)):
            self._sent_report, self._sent_at = report, now


async def _with_timeout(sending: Awaitable[None]) -> None:
    # Not `wait_for`: before Python 3.12 it can swallow a cancellation that meets the result, and
    # this task would live for ever.
    async with asyncio.timeout(SEND_TIMEOUT_S):
        await sending


def _urgent_part(report: NodeReport) -> tuple[object, ...]:
    return (
        report.reasons,
        report.tiers,
        report.tier_problems,
        [(device.healthy, device.health) for device in report.devices],
    )
