"""What drives the service: ticks come however busy it is, a store that is away delays and loses
nothing, and the clock may jump.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator
from contextlib import aclosing, contextmanager
from pathlib import Path

import pytest

from jupyter_gpushare import messages as m
from jupyter_gpushare.scheduler.auth.identity import Identity
from jupyter_gpushare.scheduler.policy.policy_file import load_policy
from jupyter_gpushare.scheduler.service.loop import SchedulingLoop
from jupyter_gpushare.scheduler.service.pending_status import BATCH
from jupyter_gpushare.scheduler.service.service import SchedulerService
from jupyter_gpushare.scheduler.store.store import Cutoffs, Retention, Store, StoreUnavailable
from tests.scheduler.agents import node
from tests.scheduler.databases import check_invariants, tables
from tests.scheduler.running_server import asking, open_server
from tests.scheduler.scheduler_forks import ForkServer

ADMIN = Identity("root", (), "admin")
ONE, TWO = (
    "projects: [{name: one, pools: {default: {gpu: {quota: 2}}}}]\n",
    "projects: [{name: two}]\n",
)
DAY = 24 * 3600 * 1000
LIMITED = """\
projects:
  - {name: one, pools: {default: {gpu: {quota: 2}}}}
  - {name: none, pools: {default: {gpu: {limit: 0}}}}
"""


class Listener:
    def __init__(self) -> None:
        self.frames: list[m.SchedulerFrame] = []

    def publish(self, frame: m.SchedulerFrame, project: str | None, user: str | None) -> None:
        self.frames.append(frame)

    def told(self) -> list[str]:
        """Workloads with a published change since the last call."""
        told = [frame.workload.id for frame in self.frames if isinstance(frame, m.WorkloadChanged)]
        self.frames.clear()
        return told


class Bench:
    """A service on a file with one node of two GPUs, and hands on its clock."""

    def __init__(self, folder: Path, policy: str) -> None:
        self.time, self.listener = 10 * DAY, Listener()
        self.orders: list[m.ToAgent] = []
        self.policy_file = folder / "gpushare.yaml"
        self.policy_file.write_text(policy)
        self.store = Store(f"sqlite:///{folder}/x.db")
        self.service = SchedulerService(
            self.store, load_policy(self.policy_file), self.listener, clock=lambda: self.time
        )
        self.service.agent_hello(m.AgentHello(version="1", node=node()), self.orders.append)
        self.loop = SchedulingLoop(self.service, self.policy_file)

    def ask(self, id_: str, gpu: object = 1, **more: object) -> None:
        self.service.submit(ADMIN, asking(id_, gpu, **more))

    def tick(self, ms: int = 1000) -> None:
        self.time += ms
        self.loop.turn(is_tick=True)

    def state(self, id_: str) -> str:
        return self.service.queries.workload(ADMIN, id_).state

    @contextmanager
    def store_away(self) -> Iterator[None]:
        """Every write is refused, as a full disk or a lost database would."""
        with self.store.engine.connect() as connection:
            connection.exec_driver_sql("PRAGMA query_only=ON")
        yield
        with self.store.engine.connect() as connection:
            connection.exec_driver_sql("PRAGMA query_only=OFF")


def test_ticks_come_while_requests_never_stop(tmp_path: Path):
    """A policy that changes while somebody asks all the time still comes into force."""
    file = tmp_path / "gpushare.yaml"
    file.write_text(ONE)

    async def story() -> None:
        async with open_server(tmp_path, policy_file=file) as running:
            file.write_text(TWO + "# another size\n")
            async with asyncio.timeout(60):
                while running.server.service.unit_of_work.loaded.policy.projects[0].name != "two":
                    running.server.service.unit_of_work.wake()
                    await asyncio.sleep(0.02)

    asyncio.run(story())


def test_a_policy_that_cannot_be_stored_yet_is_taken_when_the_store_is_back(tmp_path: Path):
    bench = Bench(tmp_path, ONE)
    bench.ask("a", project="one")
    bench.tick()
    bench.policy_file.write_text(TWO + "# another size\n")
    with bench.store_away():
        bench.tick()
        assert bench.service.queries.status(ADMIN).projects == ["one"]
        assert bench.service.unit_of_work.nodes.loaded is bench.service.unit_of_work.loaded
    bench.tick()
    assert "two" in bench.service.queries.status(ADMIN).projects


def test_what_could_not_be_committed_is_decided_when_the_store_is_back(tmp_path: Path):
    bench = Bench(tmp_path, ONE)
    bench.ask("a")
    with bench.store_away(), pytest.raises(StoreUnavailable):
        bench.tick()
    assert bench.state("a") == "pending"
    assert not any(
        isinstance(order, m.LeaseUpdated) and order.lease.workload == "a" for order in bench.orders
    )
    bench.tick()
    assert bench.state("a") == "running"


@pytest.mark.parametrize("jump", [-DAY, DAY], ids=["back", "ahead"])
def test_a_clock_that_jumps_breaks_nothing(tmp_path: Path, jump: int):
    bench = Bench(tmp_path, ONE)
    bench.ask("a")
    bench.tick()
    bench.tick(jump)
    assert bench.service.queries.nodes(ADMIN).nodes[0].status == "Ready"
    bench.ask("b")
    bench.tick()
    bench.ask("c")
    bench.tick()
    assert [bench.state(id_) for id_ in "abc"] == ["running", "running", "pending"]
    bench.service.end(ADMIN, "a")
    bench.tick()
    assert bench.state("c") == "running"
    rows = bench.store.lease_spans(0)
    assert sorted(body.workload for body, _, end in rows if end is None) == ["b", "c"]
    for body, _, _ in rows:
        row = m.LeaseUsage(lease=body.id, held_ms=7, busy_ms=1, used_mib_ms=2, borrowed_mib_ms=0)
        bench.service.agent_report(
            "n0",
            m.UsageReport(since_ms=0, life="x", number=1 + len(bench.store.usage()), rows=[row]),
        )
        bench.tick()
    assert sum(row["held_ms"] for row in bench.store.usage()) == 7 * len(rows)
    check_invariants(f"sqlite:///{tmp_path}/x.db")


def test_a_grace_time_ends_although_the_clock_was_set_back(tmp_path: Path):
    bench = Bench(tmp_path, ONE)
    bench.service.agent_disconnected("n0", bench.service.unit_of_work.nodes._sends["n0"])
    bench.tick(-DAY)
    for _ in range(4):
        bench.tick(60_000)
    assert bench.service.queries.nodes(ADMIN).nodes[0].reasons == ["agent silent"]


def test_queue_changes_are_published_in_batches(tmp_path: Path):
    """Those who are refused by a limit all see "GPUs free" change; a grant tells of itself at once,
    of them bit by bit.
    """
    policy = LIMITED
    bench = Bench(tmp_path, policy)
    waiting = [f"w{i:04}" for i in range(600)]
    for id_ in waiting:
        bench.ask(id_, project="none", queue_anyway=True)
    bench.loop.turn(is_tick=False)
    bench.listener.told()
    bench.ask("a", project="one")
    bench.loop.turn(is_tick=False)
    assert set(bench.listener.told()) == {"a"}
    assert (
        bench.service.queries.workload(ADMIN, "w0007").reason.numbers["free_total"] == 1
    )  # queries get the current state
    told: list[str] = []
    for _ in bench.service.pending_status.publish_changes():
        more = bench.listener.told()
        assert len(more) <= BATCH
        told += more
    assert told == waiting
    assert list(bench.service.pending_status.publish_changes()) == []  # nothing new to tell


def test_a_position_in_a_long_queue_is_counted_before_it_is_published(tmp_path: Path):
    """A grant among many pending workloads counts no positions; publishing and queries do."""
    bench = Bench(tmp_path, LIMITED)
    for i in range(600):
        bench.ask(f"w{i:04}", project="none", queue_anyway=True)
    bench.loop.turn(is_tick=False)
    assert bench.service.unit_of_work.records["w0599"].position is None
    assert bench.service.queries.workload(ADMIN, "w0599").queue_position == 600
    bench.ask("w9999", project="none", queue_anyway=True)
    bench.loop.turn(is_tick=False)
    assert bench.service.unit_of_work.records["w9999"].position is None
    for _ in bench.service.pending_status.publish_changes():
        pass
    assert bench.service.unit_of_work.records["w9999"].position == 601
    assert bench.service.unit_of_work.records["w9999"].reason.numbers["position"] == 601


def test_what_ended_long_ago_is_forgotten_and_what_lives_is_not(tmp_path: Path):
    bench = Bench(tmp_path, ONE)
    bench.loop.retention = Retention.of(2 * DAY)
    bench.ask("old", 0.5)
    bench.ask("alive", 0.5)
    bench.tick()
    lease = bench.service.unit_of_work.records["old"].leases["kernel"].id
    bench.service.agent_report(
        "n0",
        m.UsageReport(
            since_ms=0,
            rows=[
                m.LeaseUsage(lease=lease, held_ms=5, busy_ms=1, used_mib_ms=2, borrowed_mib_ms=0)
            ],
        ),
    )
    bench.service.end(ADMIN, "old")
    bench.tick(2 * DAY - 1000)
    assert bench.store.is_ended("old")
    assert len(bench.store.usage()) == 1
    bench.tick(2000)
    assert not bench.store.is_ended("old")
    assert bench.store.usage() == []
    assert [body.workload for body, _, _ in bench.store.lease_spans(0)] == ["alive"]
    assert [row.request.id for row in bench.store.load().workloads] == ["alive"]


def test_every_kind_is_remembered_for_its_own_time(tmp_path: Path):
    bench = Bench(tmp_path, ONE)
    bench.loop.retention = Retention(workloads=3 * DAY, events=DAY, usage=5 * DAY)
    bench.ask("old", 0.5)
    bench.tick()
    bench.service.end(ADMIN, "old")

    def kept() -> tuple[bool, bool, bool]:
        rows = tables(f"sqlite:///{tmp_path}/x.db")
        return bool(rows["workloads"]), bool(rows["events"]), bool(rows["leases"])

    bench.tick(DAY - 1000)
    assert kept() == (True, True, True)
    bench.tick(2000)
    assert kept() == (True, False, True)
    bench.tick(2 * DAY)
    assert kept() == (False, False, True)
    bench.tick(2 * DAY)
    assert kept() == (False, False, False)


def test_only_the_latest_ended_workloads_of_a_user_are_kept(tmp_path: Path):
    bench = Bench(tmp_path, ONE)
    bench.loop.retention = Retention(90 * DAY, 90 * DAY, 90 * DAY, per_user=10)
    bench.ask("long", 0.5)
    for user in ("alice", "bob"):
        for i in range(12):
            pod = m.PodRequest(gpu=0 if i % 2 else 0.1)
            bench.service.submit(ADMIN, m.WorkloadRequest(id=f"{user}{i}", pods=[pod], user=user))
            bench.service.run_cycle()
            bench.time += 70_000
            if user == "bob" or i < 10:
                bench.service.end(ADMIN, f"{user}{i}")
    bench.tick()
    bench.tick()
    rows = tables(f"sqlite:///{tmp_path}/x.db")
    kept = {str(row[0]) for row in rows["workloads"]}
    assert kept == {"long", *(f"alice{i}" for i in range(12)), *(f"bob{i}" for i in range(2, 12))}
    assert {str(row[1]) for row in rows["events"]} == kept
    held = {str(row[1]) for row in rows["leases"]}
    assert {"long", "bob0"} <= held, "leases with GPUs stay, for the usage"
    assert "bob1" not in held


def test_an_ended_workload_keeps_only_displayed_fields(tmp_path: Path):
    """Environments and labels would fill the database for as long as workloads are remembered."""
    bench = Bench(tmp_path, ONE)
    bench.loop.retention = Retention.of(90 * DAY)
    command = m.CommandRequest(argv=["true"], env={"SETTINGS": "x" * 100_000}, cwd="/")
    for i in range(5):
        labels = {f"k{j}": "v" * 60 for j in range(60)}
        pod = m.PodRequest(gpu=0.1, labels=labels)
        bench.service.submit(ADMIN, m.WorkloadRequest(id=f"w{i}", pods=[pod], command=command))
    bench.service.end(ADMIN, "w0")
    bench.service.end(ADMIN, "w1")
    for _ in range(3):
        bench.tick()
    rows = tables(f"sqlite:///{tmp_path}/x.db")["workloads"]
    sizes = {str(row[0]): len(str(row[1])) for row in rows}
    assert max(sizes["w0"], sizes["w1"]) < 1000 < min(sizes[f"w{i}"] for i in (2, 3, 4))
    ended = {one.row.request.id: one.row.request for one in bench.store.ended_batch()}
    assert ended["w0"].command is not None
    assert ended["w0"].command.argv == ["true"]
    assert ended["w0"].pods[0].gpu == 0.1


def test_what_is_too_much_for_one_go_is_forgotten_in_several(tmp_path: Path):
    bench = Bench(tmp_path, ONE)
    for i in range(5):
        bench.ask(f"w{i}", 0.1)
        bench.service.end(ADMIN, f"w{i}")
    before = Cutoffs(workloads=0, events=bench.time + 1, usage=0)
    for _ in range(3):
        assert tables(f"sqlite:///{tmp_path}/x.db")["events"]
        bench.store.prune(before, most=2)
    assert tables(f"sqlite:///{tmp_path}/x.db")["events"] == []


def test_what_fair_share_looks_back_on_is_not_forgotten(tmp_path: Path):
    bench = Bench(
        tmp_path,
        "node_pools: [{name: default, time_based_fairshare: {enabled: true, window: 7d}}]\n" + ONE,
    )
    bench.loop.retention = Retention.of(DAY)
    bench.ask("old", 0.5)
    bench.tick()
    bench.service.end(ADMIN, "old")
    bench.tick(6 * DAY)
    assert not bench.store.is_ended("old")
    assert len(bench.store.lease_spans(0)) == 1  # who held what is what it looks at
    bench.tick(2 * DAY)
    assert bench.store.lease_spans(0) == []


def test_sighup_reads_the_policy_even_when_the_file_looks_the_same(tmp_path: Path):
    file, fork_server = tmp_path / "gpushare.yaml", ForkServer()
    file.write_text(ONE)
    before = file.stat()

    async def story() -> None:
        child = fork_server.start(tmp_path / "state", policy_file=str(file))
        client = child.client()
        async with asyncio.timeout(60), aclosing(client.changes()) as frames:
            assert (await anext(frames)).status.projects == ["one"]
            file.write_text(ONE.replace("one", "two"))
            os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
            os.kill(child.pid, signal.SIGHUP)
            while (await anext(frames)).status.projects != ["two"]:
                pass
        client.transport.close()
        assert child.end() == 0

    try:
        asyncio.run(story())
    finally:
        fork_server.close()


def test_usage_is_added_up_and_written_at_the_tick_also_when_the_store_was_away(tmp_path: Path):
    """Reports of many agents cost one commit a second; none is lost while the disk is full."""
    bench = Bench(tmp_path, ONE)
    for id_ in ("a", "b"):
        bench.ask(id_)
    bench.tick()
    leases = {
        id_: bench.service.unit_of_work.records[id_].leases["kernel"].id for id_ in ("a", "b")
    }

    def report(id_: str, held: int) -> None:
        row = m.LeaseUsage(
            lease=leases[id_], held_ms=held, busy_ms=1, used_mib_ms=2, borrowed_mib_ms=0
        )
        bench.service.agent_report("n0", m.UsageReport(since_ms=0, rows=[row]))

    def written() -> dict[str, int]:
        return {row["lease"]: row["held_ms"] for row in bench.store.usage()}

    report("a", 10)
    report("a", 20)
    report("b", 5)
    assert written() == {}
    bench.tick()
    assert written() == {leases["a"]: 30, leases["b"]: 5}
    report("a", 1)
    with bench.store_away():
        bench.tick()
    report("a", 2)
    bench.tick()
    assert written() == {leases["a"]: 33, leases["b"]: 5}
