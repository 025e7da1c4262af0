"""What users and a node know of a killed scheduler, and invariants of the next one."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field

from jupyter_gpushare import messages as m
from jupyter_gpushare.client import SchedulerClient
from jupyter_gpushare.core.model.errors import NotFound
from tests.scheduler.agents import MIB, FakeAgent
from tests.scheduler.scheduler_forks import Child


@dataclass
class Told:
    """What people know: what was acknowledged to them, and what they asked without an answer."""

    kept: set[str] = field(default_factory=set)
    ended: set[str] = field(default_factory=set)
    unsure: set[str] = field(default_factory=set)

    async def ask(self, client: SchedulerClient, request: m.WorkloadRequest) -> None:
        self.unsure.add(request.id)
        await client.submit(request)
        self.unsure.discard(request.id)
        self.kept.add(request.id)

    async def end(self, client: SchedulerClient, id_: str) -> None:
        self.kept.discard(id_)
        self.unsure.add(id_)
        await client.end(id_)
        self.unsure.discard(id_)
        self.ended.add(id_)


def asking(id_: str, gpu: float, project: str = "vision") -> m.WorkloadRequest:
    return m.WorkloadRequest(id=id_, project=project, pods=[m.PodRequest(name="kernel", gpu=gpu)])


async def check(child: Child, agent: FakeAgent, told: Told) -> None:
    """After a restart: what was acknowledged holds, and what is booked is what somebody has."""
    client = child.client()
    there = {view.id: view for view in (await client.workloads()).workloads}
    assert told.kept <= set(there)
    assert not told.ended & set(there)
    for id_ in told.unsure:  # asked, never answered: either is right, and asking again is harmless
        with contextlib.suppress(NotFound):
            assert (await client.end(id_)).ended
    told.ended |= told.unsure
    told.unsure.clear()
    announced = list(agent.told.values())  # by the one that was killed
    async with agent.linked(client) as link:
        await agent.until(lambda: agent.plan is not None)
        await agent.until_taken(link, client)
        leases = {lease.id: lease for lease in agent.plan.leases}
        alive = set(there) - told.ended
        for lease in announced:  # so committed
            assert lease.id in leases or lease.workload not in alive or lease.wanted == "evict"
        assert {lease.workload for lease in leases.values()} <= set(there)
        agent.told.clear()
        assert all(booked <= MIB for booked in agent.booked().values())
    client.transport.close()
