"""Agents as they are: obedient, slow, silent, doubled, lying; over a real HTTP server. Whatever
they say, nothing is booked twice.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from jupyter_gpushare import messages as m
from jupyter_gpushare.client import AgentLink, SchedulerClient
from jupyter_gpushare.core.model.errors import Unavailable
from jupyter_gpushare.scheduler.policy.policy_file import default_demo_policy
from tests.scheduler.agents import MIB, FakeAgent, SilentAgent, SlowAgent, node
from tests.scheduler.running_server import RunningServer, asking, open_server
from tests.tcp_delay import delays_small_packets

pytestmark = pytest.mark.usefixtures("on_both")

TIMEOUT_S = 60.0
Story = Callable[[RunningServer, SchedulerClient], Awaitable[None]]


def play(folder: Path, story: Story) -> None:
    """Runs the story on a server with the demo's policy and a quota of two GPUs."""

    async def played() -> None:
        async with open_server(folder, policy=default_demo_policy(2)) as running:
            client = running.admin
            await asyncio.wait_for(story(running, client), TIMEOUT_S)
            client.transport.close()

    asyncio.run(played())


async def until(
    client: SchedulerClient, id_: str, seen: Callable[[m.WorkloadView], object]
) -> m.WorkloadView:
    """Waits, on the stream, for a workload to be so."""
    async for _ in client.changes():
        view = await client.workload(id_)
        if seen(view):
            return view
    raise AssertionError("the stream ended")


def is_running(view: m.WorkloadView) -> bool:
    return view.state == "running"


def test_an_obedient_agent_holds_what_is_granted(tmp_path: Path):
    async def story(running: RunningServer, client: SchedulerClient) -> None:
        agent = FakeAgent()
        async with agent.linked(client):
            await client.submit(asking("a", project="vision"))
            await client.submit(asking("b", 1, project="language"))
            await agent.until(lambda: len(agent.holds) == 2)
            view = await until(client, "a", lambda view: view.pods[0].report is not None)
            assert view.pods[0].report.state == "attached"
            await client.end("a")
            await agent.until(lambda: [lease.workload for lease in agent.holds.values()] == ["b"])

    play(tmp_path, story)


def test_small_frames_are_not_kept_back(tmp_path: Path):
    """Neither on the stream nor on an agent's link: one grant in thirty took 40 ms longer."""

    async def story(running: RunningServer, client: SchedulerClient) -> None:
        frames = client.changes()
        async with FakeAgent().linked(client), contextlib.aclosing(frames):
            await anext(frames)
            assert (
                delays_small_packets(os.getpid(), int(running.url.rpartition(":")[2])).count(False)
                >= 2
            )

    play(tmp_path, story)


def test_the_owner_gets_nothing_before_a_slow_agent_let_go(tmp_path: Path):
    """`course` has borrowed both GPUs, `vision` claims its quota: what will be free is not free."""

    async def story(running: RunningServer, client: SchedulerClient) -> None:
        agent = SlowAgent()
        async with agent.linked(client):
            await client.submit(asking("borrower", 2, project="course"))
            await agent.until(lambda: agent.holds)
            await client.submit(asking("owner", 1, project="vision"))
            await agent.until(
                lambda: (
                    isinstance(agent.orders[-1], m.LeaseUpdated)
                    and agent.orders[-1].lease.wanted == "evict"
                )
            )
            assert (await client.workload("owner")).state == "pending"
            agent.may.set()
            await until(client, "owner", is_running)
            assert (await client.workload("borrower")).state == "pending"

    play(tmp_path, story)


def test_a_silent_agent_stops_nobody(tmp_path: Path):
    async def story(running: RunningServer, client: SchedulerClient) -> None:
        silent, other = SilentAgent("silent"), FakeAgent("other")
        async with silent.linked(client), other.linked(client):
            for i in range(4):
                await client.submit(asking(f"w{i}", 1, project="vision"))
            await silent.until(lambda: len(silent.told) == 2)
            await other.until(lambda: len(other.holds) == 2)
            lease = next(iter(silent.told.values()))
            assert (await client.end(lease.workload)).ended
            assert lease.workload not in {view.id for view in (await client.workloads()).workloads}

    play(tmp_path, story)


def test_a_second_agent_of_a_node_takes_over_and_the_first_gets_no_more_orders(tmp_path: Path):
    async def story(running: RunningServer, client: SchedulerClient) -> None:
        first, second = FakeAgent(), FakeAgent()
        async with first.linked(client):
            await client.submit(asking("a"))
            await first.until(lambda: first.holds)
            async with second.linked(client):
                await second.until(lambda: second.plan is not None)
                await client.submit(asking("b"))
                await second.until(lambda: len(second.holds) == 2)
                assert len(first.told) == 1
                assert (await client.nodes()).nodes[0].status == "Ready"

    play(tmp_path, story)


def test_an_orphaned_lease_is_released_and_what_both_know_survives_a_broken_link(tmp_path: Path):
    async def story(running: RunningServer, client: SchedulerClient) -> None:
        agent = FakeAgent()
        async with agent.linked(client):
            await client.submit(asking("a"))
            await agent.until(lambda: agent.holds)
        known = next(iter(agent.holds.values()))
        agent.holds["gone@00000000"] = known
        agent.plan = None
        async with agent.linked(client):
            await agent.until(lambda: agent.plan is not None)
            assert list(agent.holds) == [known.id]
            assert is_running(await client.workload("a"))

    play(tmp_path, story)


# -- lies

GARBAGE = (
    b"",
    b"{",
    b"null",
    b"[]",
    b'"agent_hello"',
    b"\xff\xfe\x00",
    b'{"type": "nothing"}',
    b'{"type": "usage", "rows": 1}',
    b'{"type": "lease_let_go"}',
    b"[" * 5000,
    b'{"type": "lease_changed", "report": {"lease": 1}}',
)


def lies(lease: m.LeaseBody, dice: random.Random) -> list[Any]:
    """Frames of the right form that are not true."""
    some_lease = dice.choice([lease.id, "nobody@00000000", "", "@", "a" * 5000, lease.id + " "])
    number = dice.choice([-1, 0, 2**31, 2**63 - 1, 10**30])
    memory = m.MemoryMib(guaranteed=number, used=number, borrowed=-number)
    event = m.Event(
        time="yesterday", kind=dice.choice(["lost", "killed", "granted"]), message="\x00\n" * 10
    )
    devices = [
        m.DeviceReport(
            index=dice.choice([0, 1, 7, -1]),
            uuid="",
            model="",
            total_mib=dice.choice([0, -5, MIB, 2**62]),
        )
    ] * 2
    return [
        m.LeaseChanged(
            report=m.LeaseReport(
                lease=some_lease,
                state="suspended",
                gpu_uuids=["x", "y"],
                memory_mib=memory,
                generation=number,
            )
        ),
        m.LeaseEvent(lease=some_lease, event=event),
        m.UsageReport(
            since_ms=number,
            rows=[
                m.LeaseUsage(
                    lease=some_lease,
                    held_ms=number,
                    busy_ms=number,
                    used_mib_ms=0,
                    borrowed_mib_ms=0,
                )
            ],
        ),
        m.AgentHello(version="1", node=node("n1")),
        m.NodeChangedReport(node=node("n1", 5)),
        m.NodeChangedReport(
            node=m.NodeReport(
                name="n0", simulated=False, devices=devices, cpu_milli=number, memory_mib=-1
            )
        ),
    ]


@pytest.mark.parametrize("seed", range(4))
def test_a_lying_agent_harms_nobody_else(tmp_path: Path, seed: int):
    """Whatever it says: the service answers, other nodes go on, and its own GPUs are not given
    twice.
    """

    async def story(running: RunningServer, client: SchedulerClient) -> None:
        dice, honest, liar = random.Random(seed), FakeAgent("honest"), FakeAgent("n0")
        async with honest.linked(client):
            await client.submit(
                m.WorkloadRequest(id="a", pods=[m.PodRequest(gpu=0.5, nodes=["n0"])])
            )
            for _ in range(10):
                await tell_lies(client, liar, dice)
            nodes = {row.name: row.status for row in (await client.nodes()).nodes}
            assert nodes.keys() == {"honest", "n0"}
            assert nodes["honest"] == "Ready"
            await client.submit(
                m.WorkloadRequest(id="b", pods=[m.PodRequest(gpu=1, nodes=["honest"])])
            )
            await honest.until(lambda: honest.holds)
        liar.plan = None
        async with liar.linked(client):
            await liar.until(lambda: liar.plan is not None)
            assert all(booked <= MIB for booked in liar.booked().values())
            await client.end("a")
            await liar.until(lambda: not liar.holds)

    play(tmp_path, story)


def test_what_an_agent_cannot_know_is_not_taken(tmp_path: Path):
    """It speaks for its own node and its own leases, in numbers that can be true; and the link goes
    on after each mistake.
    """

    async def story(running: RunningServer, client: SchedulerClient) -> None:
        mine, other = FakeAgent("mine"), FakeAgent("other")
        async with mine.linked(client) as link, other.linked(client):
            await client.submit(
                m.WorkloadRequest(id="a", pods=[m.PodRequest(gpu=0.5, nodes=["other"])])
            )
            await other.until(lambda: other.holds)
            lease = next(iter(other.holds))
            usage = m.LeaseUsage(
                lease=lease, held_ms=-1, busy_ms=2**70, used_mib_ms=0, borrowed_mib_ms=0
            )
            for lie in (
                m.LeaseReleased(lease=lease, ended=True),
                m.LeaseChanged(report=m.LeaseReport(lease=lease, state="lost")),
                m.LeaseEvent(
                    lease=lease, event=m.Event(time=m.stamp(0), kind="killed", message="A lie.")
                ),
                m.UsageReport(since_ms=0, rows=[usage]),
                m.UsageReport(
                    since_ms=0,
                    rows=[
                        m.LeaseUsage(
                            lease=lease, held_ms=5, busy_ms=5, used_mib_ms=5, borrowed_mib_ms=0
                        )
                    ],
                ),
                m.NodeChangedReport(node=node("other", 7)),
                m.NodeChangedReport(node=node("third", 7)),
                m.AgentHello(version="1", node=node("other", 7)),
            ):
                await link.send(lie)
            await client.submit(
                m.WorkloadRequest(id="b", pods=[m.PodRequest(gpu=0.5, nodes=["mine"])])
            )
            await mine.until(lambda: mine.holds)
            assert {row.name: row.gpus for row in (await client.nodes()).nodes} == {
                "mine": 2,
                "other": 2,
            }
            assert (await client.workload("a")).pods[0].report.state == "attached"
            assert running.server.store.usage() == []

    play(tmp_path, story)


async def tell_lies(client: SchedulerClient, liar: FakeAgent, dice: random.Random) -> None:
    """Until its session ends or its messages are sent."""
    liar.plan = None
    async with liar.linked(client) as link:
        await liar.until(lambda: liar.holds)
        lease = next(iter(liar.holds.values()))
        with contextlib.suppress(Unavailable):
            for _ in range(5):
                await say(link, dice.choice(GARBAGE))
                await say(link, m.encode(dice.choice(lies(lease, dice))))


async def say(link: AgentLink, data: bytes) -> None:
    await link._wire.send(data)
