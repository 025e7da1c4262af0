"""The server as a whole: one per state directory, policy reload, metrics, and the same
inside another program's loop.
"""

from __future__ import annotations

import asyncio
import os
import re
import time
from contextlib import aclosing
from pathlib import Path

import pytest

from jupyter_gpushare import messages as m
from jupyter_gpushare.client import SchedulerClient
from jupyter_gpushare.core.model.errors import InvalidInput, NotAllowed, NotFound, Unavailable
from jupyter_gpushare.scheduler.auth.identity import Identity
from jupyter_gpushare.scheduler.embedded import EmbeddedServer, InProcessTransport
from jupyter_gpushare.scheduler.policy.policy_file import PolicyErrors
from jupyter_gpushare.scheduler.server import SchedulerServer
from tests.scheduler.agents import FakeAgent
from tests.scheduler.running_server import POLICY, asking, open_server


async def until(what, *, timeout_s: float = 60.0):
    """Asks until the answer is yes; gives that answer."""
    async with asyncio.timeout(timeout_s):
        while not (answer := await what()):
            await asyncio.sleep(0.02)
        return answer


def test_one_server_per_state_directory(tmp_path: Path):
    server = SchedulerServer(tmp_path)
    with pytest.raises(Unavailable, match="another scheduler"):
        SchedulerServer(tmp_path)
    asyncio.run(server.stop())
    asyncio.run(SchedulerServer(tmp_path).stop())


def test_a_bad_policy_is_said_at_the_start_and_leaves_nothing_behind(tmp_path: Path):
    (tmp_path / "bad.yaml").write_text("projects: 3\n")
    with pytest.raises(PolicyErrors):
        SchedulerServer(tmp_path / "state", policy_file=tmp_path / "bad.yaml")
    asyncio.run(SchedulerServer(tmp_path / "state").stop())


@pytest.mark.parametrize(
    ("db_url", "error"),
    [
        ("sqlite:////nowhere/at/all.sqlite", Unavailable),
        ("nonsense", InvalidInput),
        ("nobodys-database://localhost/x", InvalidInput),
    ],
)
def test_a_database_that_cannot_be_used_is_said_and_leaves_nothing_behind(
    tmp_path: Path, db_url: str, error: type[Exception]
):
    with pytest.raises(error):
        SchedulerServer(tmp_path, db_url=db_url)
    asyncio.run(SchedulerServer(tmp_path).stop())


def test_a_state_directory_that_cannot_be_made_is_unavailable(tmp_path: Path):
    (tmp_path / "file").touch()
    with pytest.raises(Unavailable, match="state directory"):
        SchedulerServer(tmp_path / "file" / "state")
    with pytest.raises(Unavailable, match="state directory"):
        EmbeddedServer(tmp_path / "file" / "state", simulate="2", user="alice")


def test_a_changed_policy_comes_into_force_whole_or_not_at_all(tmp_path: Path):
    """Listeners hear of it; a request that was impossible before becomes possible."""
    file = tmp_path / "gpushare.yaml"
    file.write_text(POLICY)

    def write(text: str) -> None:
        file.write_text(text)
        os.utime(file, ns=(time.time_ns(), time.time_ns() + len(text)))

    async def story():
        async with open_server(tmp_path, policy_file=file) as running:
            alice = running.of("alice")
            async with asyncio.timeout(60), aclosing(alice.changes()) as frames:
                await anext(frames)
                write(POLICY + "colour: blue\n")
                while not (frame := await anext(frames)).status.policy_problems:
                    pass
                where = rf"gpushare\.yaml:{len(POLICY.splitlines()) + 1}: colour: "
                assert re.search(where, frame.status.policy_problems[0])
                with pytest.raises(InvalidInput) as unknown:
                    await running.admin.submit(asking("a", project="sound"))
                assert unknown.value.field == "project"
                write(POLICY + "  - {name: sound, department: research, members: [alice]}\n")
                while (frame := await anext(frames)).status.policy_problems:
                    pass
                assert frame.status.projects == ["vision", "sound"]
                await alice.submit(asking("a", project="sound"))

    asyncio.run(story())


def test_metrics_count_what_happens(tmp_path: Path):
    def value(text: str, name: str) -> float:
        return float(re.search(rf"^{re.escape(name)} (\S+)$", text, re.MULTILINE)[1])

    async def story():
        async with open_server(tmp_path) as running:
            agent = FakeAgent()
            async with agent.linked(running.admin) as link:
                await running.of("alice").submit(asking("a", 2))
                await agent.until(lambda: agent.holds)
                lease = next(iter(agent.holds.values()))
                memory = m.MemoryMib(guaranteed=1024, used=512, borrowed=0)
                await link.send(
                    m.LeaseChanged(
                        report=m.LeaseReport(lease=lease.id, state="attached", memory_mib=memory)
                    )
                )
                await link.send(
                    m.UsageReport(
                        since_ms=5000,
                        rows=[],
                        gate_waits_ms=[2000, 4000],
                        suspends_ms=[100],
                        rungs={"suspended": 1, "?": 9},
                    )
                )
                await running.of("bob").submit(asking("b", 1))  # takes its quota back from `a`
                await agent.until(
                    lambda: any(held.workload == "b" for held in agent.holds.values())
                )
                text = (await running.raw("GET", "/metrics")).body.decode()
                assert (
                    value(
                        text,
                        'gpushare_queue_quota{kind="project",pool="default",'
                        'queue="vision",resource="gpu"}',
                    )
                    == 1
                )
                assert (
                    value(
                        text,
                        'gpushare_queue_allocated{kind="project",pool="default",'
                        'queue="language",resource="gpu"}',
                    )
                    == 1
                )
                assert value(text, 'gpushare_evictions_total{action="reclaim"}') == 1
                assert (
                    value(text, 'gpushare_evictions_total{action="preempt"}') == 0
                )  # there before its first event
                assert value(text, "gpushare_grant_wait_seconds_count") == 2
                assert value(text, 'gpushare_reclaims_total{rung="suspended"}') == 1
                assert value(text, 'gpushare_reclaims_total{rung="killed"}') == 0
                assert value(text, "gpushare_gate_wait_seconds_sum") == 6
                assert value(text, "gpushare_suspend_seconds_count") == 1
                assert value(text, "gpushare_resume_seconds_count") == 0
                assert value(text, 'gpushare_node_ready{node="n0",reason=""}') == 1
                assert value(text, 'gpushare_agent_tier{node="n0",tier="suspend"}') == 1
                assert (
                    value(text, 'gpushare_workloads{pool="default",reason="",state="running"}') == 1
                )
                cycles = value(text, 'gpushare_cycle_seconds_count{action="all"}')
                assert cycles >= 2
                for action in (
                    "allocate",
                    "consolidation",
                    "reclaim",
                    "preempt",
                    "stale_gang_eviction",
                ):
                    assert (
                        value(text, f'gpushare_cycle_seconds_count{{action="{action}"}}') == cycles
                    )

    asyncio.run(story())


def test_a_second_agent_for_a_node_ends_the_first_ones_link(tmp_path: Path):
    async def story():
        async with open_server(tmp_path) as running:
            first, second = FakeAgent(), FakeAgent()
            async with asyncio.timeout(60), running.admin.agent_link() as link:
                await link.send(m.AgentHello(version="1", node=first.node))
                assert isinstance(await anext(aiter(link)), m.Plan)
                async with second.linked(running.admin):
                    await second.until(lambda: second.plan)
                    with pytest.raises((Unavailable, StopAsyncIteration)):
                        await anext(aiter(link))
                    assert (await running.admin.status()).agents == ["n0"]
                    await running.admin.submit(asking("a", project="vision"))
                    await second.until(lambda: second.holds)

    asyncio.run(story())


def test_an_agents_token_speaks_for_the_nodes_that_it_is_named_for(tmp_path: Path):
    async def story():
        async with open_server(tmp_path) as running:
            for token, node, is_welcome in (
                ("n0", "n0", True),
                ("n0", "n1", False),
                ("gpu-*", "gpu-7", True),
                ("gpu-*", "n1", False),
            ):
                async with running.of(token, "agent").agent_link() as link:
                    await link.send(m.AgentHello(version="1", node=FakeAgent(node).node))
                    if is_welcome:
                        assert isinstance(await anext(aiter(link)), m.Plan), (token, node)
                    else:
                        with pytest.raises(Unavailable, match="is not valid for node"):
                            await anext(aiter(link))

    asyncio.run(story())


def test_a_frame_that_nobody_understands_breaks_no_link(tmp_path: Path):
    async def story():
        async with (
            open_server(tmp_path) as running,
            running.admin.transport.connect("/api/v1/agent", {}) as wire,
        ):
            await wire.send(m.encode(m.AgentHello(version="9", node=FakeAgent().node)))
            assert isinstance(m.decode(m.ToAgent, await anext(aiter(wire))), m.Plan)
            for nonsense in (b'{"type": "poem"}', b"{", b'{"type": "lease_changed"}', b""):
                await wire.send(nonsense)
            await wire.send(m.encode(m.LeaseReleased(lease="x@y", ended=True)))
            assert isinstance(m.decode(m.ToAgent, await anext(aiter(wire))), m.LeaseRevoked)
            assert (await running.admin.status()).agents == ["n0"]

    asyncio.run(story())


def test_who_does_not_begin_with_a_hello_is_sent_away(tmp_path: Path):
    async def story():
        async with (
            open_server(tmp_path) as running,
            running.admin.transport.connect("/api/v1/agent", {}) as wire,
        ):
            await wire.send(m.encode(m.LeaseReleased(lease="x@y", ended=True)))
            with pytest.raises(Unavailable, match="hello"):
                await anext(aiter(wire))

    asyncio.run(story())


# -- embedded


def test_embedded_a_request_is_granted_by_scheduler_and_agent_in_one_loop(tmp_path: Path):
    async def story():
        server = EmbeddedServer(tmp_path, simulate="A100:2", user="alice", node="here")
        await server.start()
        try:
            await server.client.submit(asking("a"))

            async def reported():
                (pod,) = (await server.client.workload("a")).pods
                return pod.report and pod

            pod = await until(reported)
            assert (pod.lease.node, pod.lease.request_mib) == ("here", 40 * 1024)
            status = await server.client.status()
            assert (status.user, status.admin, status.agents) == ("alice", True, ["here"])
            (node,) = (await server.client.nodes()).nodes
            assert node.simulated
            assert all(device.model.startswith("Simulated") for device in node.devices)
        finally:
            await server.stop()
        await server.stop()
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(story())


def test_embedded_refuses_what_it_cannot_do_and_leaves_nothing_behind(tmp_path: Path):
    async def story():
        with pytest.raises(Unavailable):
            EmbeddedServer(tmp_path / "a", simulate="", user="alice")
        with pytest.raises(InvalidInput):
            EmbeddedServer(tmp_path / "a", simulate="A100:zero", user="alice")
        first = EmbeddedServer(tmp_path / "b", simulate="2", user="alice")
        with pytest.raises(Unavailable, match="another scheduler"):
            EmbeddedServer(tmp_path / "b", simulate="2", user="alice")
        await first.start()
        await first.stop()

    asyncio.run(story())


def test_inside_the_process_the_same_permissions_hold(tmp_path: Path):
    async def story():
        server = SchedulerServer(tmp_path)
        transport = InProcessTransport(server, Identity("alice"))
        with pytest.raises(NotAllowed):
            await SchedulerClient(transport).snapshot()
        with pytest.raises(NotAllowed):
            async with SchedulerClient(transport).agent_link():
                pass
        with pytest.raises(NotFound):
            transport.connect("/api/v1/queues", {})
        await server.stop()

    asyncio.run(story())


def test_two_schedulers_on_one_file_cannot_both_run_whatever_their_directories(tmp_path: Path):
    url = f"sqlite:///{tmp_path}/shared.sqlite"
    server = SchedulerServer(tmp_path / "a", db_url=url)
    with pytest.raises(Unavailable, match="another scheduler runs on this database") as caught:
        SchedulerServer(tmp_path / "b", db_url=url)
    assert caught.value.field == f"{tmp_path}/shared.sqlite"
    asyncio.run(server.stop())
    asyncio.run(SchedulerServer(tmp_path / "b", db_url=url).stop())
    asyncio.run(
        SchedulerServer(tmp_path / "c", db_url=f"sqlite:///{tmp_path}/c/scheduler.sqlite").stop()
    )  # the directory's own file, said aloud
