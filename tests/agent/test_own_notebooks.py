"""Two busy notebooks of one person that each need more than their share: notices name the other
notebook, and they do not evict each other at every notice.
"""

from __future__ import annotations

import pytest

from node_agent.policy.reclaim_ladder import decide
from node_agent.policy.reclaim_steps import NoticeStep, WaitStep
from node_agent.policy.snapshot import NodeSnapshot, Tenant
from node_agent.state import residence
from node_agent.state.residence import FIRST_MS, LONGEST_MS, Residence, Rotations
from tests.agent.simulated_node import GIB, World, play

HALF = 40 * GIB
WAITS = Tenant("b", 40, 80, (0,), image=(70,), suspended=True, running=True, wants_since=5)
RUNS = Tenant("a", 40, 80, (0,), {0: 70}, running=True, notice_ms=1000)


def steps(waits: Tenant, runs: Tenant, now: int):
    decision = decide(NodeSnapshot({0: 80}, (waits, runs)), now)
    return [type(step) for step in decision.steps], decision.deadline


def of(user: str, tenant: Tenant, **more) -> Tenant:
    from dataclasses import replace

    return replace(tenant, user=user, **more)


def test_a_resident_notebook_gets_no_notice_for_another_one_of_its_user():
    runs = of("ada", RUNS, resident_until=500)
    assert steps(of("ada", WAITS), runs, 499) == ([WaitStep], 500)
    assert steps(of("ada", WAITS), runs, 500) == ([NoticeStep, WaitStep], 1500)


@pytest.mark.parametrize(("one", "other"), [("ada", "bob"), ("", ""), ("ada", "")])
def test_residence_counts_only_between_notebooks_of_one_user(one: str, other: str):
    runs = of(other, RUNS, resident_until=500)
    assert steps(of(one, WAITS), runs, 0) == ([NoticeStep, WaitStep], 1000)


def test_the_guarantee_is_due_also_to_another_notebook_of_the_same_user():
    runs = of("ada", RUNS, resident_until=500)
    assert steps(of("ada", WAITS, image=(40,)), runs, 0) == ([NoticeStep, WaitStep], 1000)


def test_an_idle_notebook_is_not_resident():
    runs = of("ada", RUNS, running=False, resident_until=500)
    assert steps(of("ada", WAITS), runs, 0)[0][-1] is WaitStep
    assert len(steps(of("ada", WAITS), runs, 0)[0]) == 2, "it is suspended"


def test_residence_grows_with_every_eviction_and_is_forgotten():
    rotations, now, lengths = Rotations(), 0, []
    for _ in range(8):
        lengths.append(rotations.evicted("ada", now))
        now += lengths[-1] + 1000
    assert lengths[:4] == [FIRST_MS, 2 * FIRST_MS, 4 * FIRST_MS, 8 * FIRST_MS]
    assert lengths[-1] == LONGEST_MS
    assert rotations.evicted("bob", now) == FIRST_MS, "each person has their own"
    assert rotations.evicted("ada", now + 4 * LONGEST_MS) == FIRST_MS


def test_residence_begins_when_the_memory_is_there():
    one = Residence(granted_ms=100)
    one.begin(1000)
    one.begin(2000)
    assert (one.granted_ms, one.until) == (0, 1100)


def test_two_busy_notebooks_take_turns_seldom_and_know_of_each_other(monkeypatch):
    monkeypatch.setattr(residence, "FIRST_MS", 3_000)

    async def story():
        async with World(gpus=1, notice_ms=200) as world:
            for name in "ab":
                world.scheduler.grant(name, gpu=0, request=HALF, user="ada")
                await world.server.launch(name, user="ada")
                await world.attached(name)
            a, b = (world.server.kernels[name] for name in "ab")
            busy = "end = time.monotonic() + 120\nwhile time.monotonic() < end: simgpu.busy(0.05)"
            await a.run("held = simgpu.alloc('70GiB')")
            await world.until(lambda: not world.record("a").gate.running, "a is idle")
            b.start("held = simgpu.alloc('70GiB')\n" + busy)
            await world.until(lambda: world.record("b").memory.used_mib == 70 * GIB, "b works")
            a.start(busy)

            def notices(name: str) -> list[str]:
                events = [(who, kind) for who, kind, _ in world.server.events]
                texts = [text for *_, text in world.server.events]
                pairs = zip(events, texts, strict=True)
                return [text for event, text in pairs if event == (name, "notice")]

            await world.until(lambda: notices("b"), "b has to make room")
            assert "your notebook a.ipynb needs its share" in notices("b")[0]
            until = await world.until(lambda: world.record("a").residence.until, "a is resident")
            await world.until(lambda: notices("a"), "a has to make room later", timeout=60)
            assert world.agent.node.clock() >= until, "but not at once"
            assert "your notebook b.ipynb needs its share" in notices("a")[0]
            later = await world.until(lambda: world.record("b").residence.until, "b is resident")
            assert later - until >= 6_000, "for longer than a was"

    play(story())
