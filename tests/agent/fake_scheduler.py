"""A scheduler for tests of the agent: plans what the test says."""

from __future__ import annotations

import asyncio
import contextlib

from jupyter_gpushare.messages import (
    AgentHello,
    LeaseBody,
    LeaseEvent,
    LeaseReleased,
    LeaseRevoked,
    LeaseUpdated,
    LogAcknowledged,
    LogChunk,
    NodeRules,
    Plan,
    Share,
    UsageAcknowledged,
    UsageReport,
)

GIB = 1024


class FakeLink:
    """One connection to the fake scheduler."""

    def __init__(self, scheduler: FakeScheduler, orders: asyncio.Queue) -> None:
        self.scheduler, self.orders = scheduler, orders

    async def send(self, body) -> None:
        if self.scheduler.silent:
            raise ConnectionResetError
        self.scheduler.hear(body, self.orders)

    async def __aiter__(self):
        while (order := await self.orders.get()) is not None:
            yield order


class FakeScheduler:
    """Plans what the test says. `silent`: drops the link and refuses to answer."""

    def __init__(self, rules: NodeRules) -> None:
        self.rules, self.leases, self.heard, self.events = rules, {}, [], []
        self.acknowledges = True
        self._links: list[asyncio.Queue] = []
        self.silent = False
        self.revision = 0

    @contextlib.asynccontextmanager
    async def link(self):
        if self.silent:
            raise ConnectionRefusedError("nobody there")
        orders: asyncio.Queue = asyncio.Queue()

        link = FakeLink(self, orders)
        self._links.append(orders)
        try:
            yield link
        finally:
            self._links.remove(orders)

    def cut(self) -> None:
        self.silent = True
        for orders in self._links:
            orders.put_nowait(None)

    def hear(self, body, orders) -> None:
        self.heard.append(body)
        if isinstance(body, AgentHello):
            orders.put_nowait(self.plan())
        elif isinstance(body, LeaseEvent):
            self.events.append((body.lease, body.event.kind, body.event.message))
        elif (
            isinstance(body, LeaseReleased)
            and self.acknowledges
            and self.leases.pop(body.lease, None)
        ):
            self._tell(LeaseRevoked(revision=self._next(), lease=body.lease))
        elif isinstance(body, UsageReport) and body.number and self.acknowledges:
            orders.put_nowait(UsageAcknowledged(life=body.life, number=body.number))
        elif isinstance(body, LogChunk) and self.acknowledges:
            orders.put_nowait(LogAcknowledged(lease=body.lease, stop=body.stop))

    def output(self, lease: str) -> str:
        """What a command has printed."""
        text, end = "", 0
        for body in self.heard:
            if isinstance(body, LogChunk) and body.lease == lease and body.start >= end:
                text, end = text + body.text, body.stop
        return text

    def use(self, **rules) -> None:
        import msgspec

        self.rules = msgspec.structs.replace(self.rules, **rules)
        self._tell(self.plan())

    def plan(self) -> Plan:
        return Plan(revision=self._next(), rules=self.rules, leases=list(self.leases.values()))

    def _next(self) -> int:
        self.revision += 1
        return self.revision

    def _tell(self, order) -> None:
        for orders in self._links:
            orders.put_nowait(order)

    def grant(
        self,
        kernel_id: str,
        *,
        gpu: int | tuple[int, ...],
        request: int,
        limit: int = 80 * GIB,
        lease: str = "",
        **more,
    ) -> None:
        gpus = [gpu] if isinstance(gpu, int) else list(gpu)
        body = LeaseBody(
            id=lease or f"{kernel_id}.1/kernel",
            workload=f"{kernel_id}.1",
            pod="kernel",
            kernel_id=kernel_id,
            project="vision",
            node="n0",
            pool="default",
            planned_gpus=gpus,
            request_mib=request,
            limit_mib=limit,
            request=Share(gpu=0.5),
            **more,
        )
        self.leases[body.id] = body
        self._tell(LeaseUpdated(revision=self._next(), lease=body))

    def evict(
        self,
        kernel_id: str,
        notice_ms: int = 300,
        message: str = "a workload of project course comes first",
    ) -> None:
        for body in list(self.leases.values()):
            if body.kernel_id == kernel_id:
                self.grant_again(body, wanted="evict", notice_ms=notice_ms, message=message)

    def grant_again(self, body: LeaseBody, **changes) -> None:
        import msgspec

        self.leases[body.id] = msgspec.structs.replace(body, **changes)
        self._tell(LeaseUpdated(revision=self._next(), lease=self.leases[body.id]))

    def end(self, kernel_id: str) -> None:
        for body in list(self.leases.values()):
            if body.kernel_id == kernel_id:
                del self.leases[body.id]
                self.revoke(body.id)

    def revoke(self, lease: str) -> None:
        self._tell(LeaseRevoked(revision=self._next(), lease=lease))

    def kinds(self, kernel_id: str) -> list[str]:
        return [kind for lease, kind, _ in self.events if lease.startswith(kernel_id + ".")]
