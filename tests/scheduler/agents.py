"""Node agents with character, on the real link: obedient, slow, silent, lying."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from jupyter_gpushare import messages as m
from jupyter_gpushare.client import AgentLink, SchedulerClient
from jupyter_gpushare.core.model.errors import GpuShareError
from node_agent.state.usage_outbox import UsageOutbox

MIB = 80 * 1024


def node(name: str = "n0", gpus: int = 2) -> m.NodeReport:
    devices = [
        m.DeviceReport(
            index=i, uuid=f"SIM-GPU-{name}-{i}", model="Simulated A100-80GB", total_mib=MIB
        )
        for i in range(gpus)
    ]
    return m.NodeReport(name=name, simulated=True, devices=devices, tiers=["observe", "suspend"])


class FakeAgent:
    """Obeys at once: attaches granted leases, releases others. Keeps its leases when the connection
    breaks.

    `told`: every lease that it was ever told to hold, so that a test can compare with what the
    scheduler remembers.
    """

    def __init__(self, name: str = "n0", gpus: int = 2) -> None:
        self.node = node(name, gpus)
        self.holds: dict[str, m.LeaseBody] = {}
        self.told: dict[str, m.LeaseBody] = {}
        self.plan: m.Plan | None = None
        self.orders: list[m.ToAgent] = []
        self.changed = asyncio.Condition()
        self.usage_outbox = UsageOutbox()
        self.used = 0
        """ms that it ever booked as held, by whatever lease."""

    @asynccontextmanager
    async def linked(self, client: SchedulerClient) -> AsyncIterator[AgentLink]:
        """Its connection after the hello; orders are obeyed until the block or connection ends."""
        async with client.agent_link() as link:
            await link.send(
                m.AgentHello(
                    version="1",
                    node=self.node,
                    leases=[self._report(lease) for lease in self.holds.values()],
                )
            )
            obeying = asyncio.create_task(self._obey(link))
            try:
                yield link
            finally:
                obeying.cancel()
                with contextlib.suppress(asyncio.CancelledError, GpuShareError):
                    await obeying

    def use(self) -> None:
        """A ms of everything that it holds."""
        for lease in self.holds:
            self.usage_outbox.row(lease).held_ms += 1
            self.used += 1

    async def report(self, link: AgentLink) -> None:
        """What was used and not taken yet."""
        self.usage_outbox.begin()
        if rows := self.usage_outbox.in_flight():
            await link.send(
                m.UsageReport(
                    since_ms=1,
                    life=self.usage_outbox.life,
                    number=self.usage_outbox.number,
                    rows=rows,
                )
            )

    async def until_taken(
        self, link: AgentLink, client: SchedulerClient, *, timeout_s: float = 60.0
    ) -> None:
        """Everything that was used is on the scheduler's disk."""
        async with asyncio.timeout(timeout_s):
            while self.usage_outbox.sent or self.usage_outbox.rows:
                await self.report(link)
                await client.usage()  # who asks makes it write: no need to wait for a tick
                await asyncio.sleep(0.01)

    async def until(self, seen: object, *, timeout_s: float = 60.0) -> None:
        """Waits until this is so."""
        async with asyncio.timeout(timeout_s), self.changed:
            await self.changed.wait_for(seen)  # type: ignore[arg-type]

    async def _obey(self, link: AgentLink) -> None:
        async for order in link:
            self.orders.append(order)
            await self._seen()
            match order:
                case m.Plan():
                    self.plan = order
                    wanted = {lease.id for lease in order.leases}
                    for id_ in [id_ for id_ in self.holds if id_ not in wanted]:
                        del self.holds[id_]
                    for lease in order.leases:
                        await self._take(link, lease)
                case m.LeaseUpdated(lease=lease):
                    await self._take(link, lease)
                case m.LeaseRevoked(lease=id_):
                    self.holds.pop(id_, None)
                case m.UsageAcknowledged(life=life, number=number):
                    self.usage_outbox.acknowledged(life, number)
            await self._seen()

    async def _seen(self) -> None:
        async with self.changed:
            self.changed.notify_all()

    async def _take(self, link: AgentLink, lease: m.LeaseBody) -> None:
        self.told[lease.id] = lease
        if lease.wanted == "evict":
            self.holds.pop(lease.id, None)
            await link.send(
                m.LeaseReleased(lease=lease.id, ended=False, message="Saved to host memory.")
            )
        else:
            self.holds[lease.id] = lease
            await link.send(m.LeaseChanged(report=self._report(lease)))

    def _report(self, lease: m.LeaseBody) -> m.LeaseReport:
        uuids = [self.node.devices[i].uuid for i in lease.planned_gpus]
        return m.LeaseReport(
            lease=lease.id,
            state="attached",
            gpu_uuids=uuids,
            memory_mib=m.MemoryMib(guaranteed=lease.request_mib),
        )

    def booked(self) -> dict[int, int]:
        """MiB that are guaranteed on each GPU."""
        return {
            i: sum(lease.request_mib for lease in self.holds.values() if i in lease.planned_gpus)
            for i in range(len(self.node.devices))
        }


class SlowAgent(FakeAgent):
    """Takes its time to let go: until `may` is set."""

    def __init__(self, name: str = "n0", gpus: int = 2) -> None:
        super().__init__(name, gpus)
        self.may = asyncio.Event()

    async def _take(self, link: AgentLink, lease: m.LeaseBody) -> None:
        if lease.wanted == "evict":
            await self.may.wait()
        await super()._take(link, lease)


class SilentAgent(FakeAgent):
    """Hears its orders, does nothing, says nothing."""

    async def _take(self, link: AgentLink, lease: m.LeaseBody) -> None:
        self.told[lease.id] = lease
