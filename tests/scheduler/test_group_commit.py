"""The service's own SQLite: one sync for many commits, and nothing is announced before it is
on disk. The disk is slow, or fails.
"""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
import threading
from collections.abc import Iterator
from contextlib import aclosing
from pathlib import Path

import pytest

from jupyter_gpushare import messages as m
from jupyter_gpushare.core.model.errors import Unavailable
from jupyter_gpushare.scheduler.store import group_commit as disks
from jupyter_gpushare.scheduler.store.group_commit import GroupCommit
from jupyter_gpushare.scheduler.store.store import Store
from tests.scheduler.agents import FakeAgent
from tests.scheduler.running_server import asking, open_server

TIMEOUT_S = 60


class SlowDisk:
    """A sync takes as long as we want. `broken`: it fails from now on."""

    def __init__(self) -> None:
        self.open = threading.Event()
        self.open.set()
        self.begun = threading.Semaphore(0)
        self.broken = False
        self.source: Path | None = None
        """A database of which every sync makes a copy: what would be there after a power cut."""
        self.kept: list[Path] = []
        """These copies, of syncs that are over."""

    def sync(self, handle: int) -> None:
        copy = self._copy() if self.source is not None else None
        self.begun.release()
        assert self.open.wait(TIMEOUT_S)
        if self.broken:
            raise OSError(errno.EIO, "Input/output error")
        self.real(handle)
        if copy is not None:
            self.kept.append(copy)

    real = staticmethod(os.fdatasync)

    def _copy(self) -> Path:
        assert self.source is not None
        copy = self.source.parent / f"cut{len(self.kept)}"
        copy.mkdir()
        for end in ("", "-wal"):
            shutil.copy(self.source.with_name(self.source.name + end), copy / f"x.sqlite{end}")
        return copy


@pytest.fixture
def slow_disk(monkeypatch: pytest.MonkeyPatch) -> Iterator[SlowDisk]:
    slow = SlowDisk()
    monkeypatch.setattr(os, "fdatasync", slow.sync)
    yield slow
    slow.open.set()


async def till(is_so: object, *args: object) -> None:
    async with asyncio.timeout(TIMEOUT_S):
        while not is_so(*args):  # type: ignore[operator]
            await asyncio.sleep(0.01)


def test_nothing_is_announced_before_it_is_on_disk(tmp_path: Path, slow_disk: SlowDisk):
    """Neither to who asked, nor to who listens, nor to the agent, nor to who looks; but whether the
    service lives is reported.
    """

    async def story() -> None:
        async with open_server(tmp_path, group_commit=True) as running:
            agent, client = FakeAgent(), running.admin
            async with agent.linked(client), aclosing(client.changes()) as frames:
                await anext(frames)
                await till(
                    lambda: running.server.store.disk.on_disk == running.server.store.disk.written
                )
                slow_disk.open.clear()
                asked = asyncio.create_task(client.submit(asking("a")))
                heard = asyncio.create_task(told_of("a", frames))
                await till(
                    lambda: (
                        running.server.service.unit_of_work.records["a"].leases
                        if "a" in running.server.service.unit_of_work.records
                        else None
                    )
                )
                looked = asyncio.create_task(client.workload("a"))
                done, _ = await asyncio.wait({asked, heard, looked}, timeout=0.3)
                assert (done, agent.told) == (set(), {})
                assert (await running.raw("GET", "/healthz")).code == 200
                slow_disk.open.set()
                assert (await asked).id == (await looked).id == await heard == "a"
                await till(lambda: agent.told)

    asyncio.run(story())


async def told_of(id_: str, frames: object) -> str:
    async for frame in frames:  # type: ignore[attr-defined]
        if isinstance(frame, m.WorkloadChanged) and frame.workload.id == id_:
            return id_
    raise AssertionError("the stream ended")


def test_many_commits_share_a_sync(tmp_path: Path, slow_disk: SlowDisk):
    async def story() -> None:
        async with open_server(tmp_path, group_commit=True) as running:
            client, disk = running.admin, running.server.store.disk
            await till(lambda: disk.on_disk == disk.written)
            slow_disk.open.clear()
            before = disk.written
            asked = [asyncio.create_task(client.submit(asking(f"w{i}"))) for i in range(20)]
            await till(lambda: len(running.server.service.unit_of_work.records) == 20)
            assert disk.written - before >= 20
            while slow_disk.begun.acquire(blocking=False):
                pass
            slow_disk.open.set()
            await asyncio.gather(*asked)
            syncs = 0
            while slow_disk.begun.acquire(blocking=False):
                syncs += 1
            assert (
                syncs <= 5
            )  # what was committed while the first was under way, and the cycles after it

    asyncio.run(story())


def test_a_disk_that_fails_ends_the_service(tmp_path: Path, slow_disk: SlowDisk):
    """Which of the last commits survive a power cut is unknown: nothing is announced
    or committed any more.
    """

    async def story() -> None:
        async with open_server(tmp_path, group_commit=True) as running:
            client = running.admin
            await client.submit(asking("kept"))
            slow_disk.broken = True
            with pytest.raises(Unavailable, match="failed to sync commits: Input/output error"):
                await client.submit(asking("lost"))
            await asyncio.wait_for(running.server.over.wait(), TIMEOUT_S)
            with pytest.raises(Unavailable, match="failed to sync"):
                await client.submit(asking("refused"))
            slow_disk.broken = False

    asyncio.run(story())


def test_a_power_cut_takes_nothing_that_was_acknowledged(
    tmp_path: Path, slow_disk: SlowDisk, monkeypatch: pytest.MonkeyPatch
):
    """At any moment, what the last sync had covered contains everything that was announced."""
    monkeypatch.setattr(
        disks, "COMMITS_PER_CHECKPOINT", 10**9
    )  # copying is SQLite's own business, and would change the file under our copy
    told: dict[str, str] = {}
    cuts: list[tuple[dict[str, str], Path]] = []

    async def story() -> None:
        async with open_server(
            tmp_path, group_commit=True, policy="projects: [{name: p}]"
        ) as running:
            client, agent = running.admin, FakeAgent(gpus=4)

            async def come_and_go(i: int) -> None:
                for turn in range(3):
                    id_ = f"w{i}-{turn}"
                    await client.submit(asking(id_, project="p"))
                    told[id_] = "alive"
                    if turn != 1:
                        told[id_] = (
                            "asked to end"  # it may have ended, though that was not announced
                        )
                        await client.end(id_)
                        told[id_] = "over"

            async with agent.linked(client):
                slow_disk.source = tmp_path / "state/scheduler.sqlite"
                everybody = asyncio.gather(*(come_and_go(i) for i in range(12)))
                while not everybody.done():
                    await asyncio.sleep(0.02)
                    if slow_disk.kept:
                        cuts.append((dict(told), slow_disk.kept[-1]))
                await everybody
                slow_disk.source = None

    asyncio.run(story())
    assert len(cuts) >= 3
    assert sum(found_after(promised, cut) for promised, cut in cuts) > 0


def found_after(promised: dict[str, str], cut: Path) -> int:
    store = Store(f"sqlite:///{cut}/x.sqlite")
    try:
        alive = {row.request.id for row in store.load().workloads}
        for id_, said in promised.items():
            assert (
                said == "over" or id_ in alive or (said == "asked to end" and store.is_ended(id_))
            ), f"{id_} was acknowledged"
            assert said != "over" or store.is_ended(id_), f"the end of {id_} was acknowledged"
        return len(promised)
    finally:
        store.close()


def test_the_log_does_not_grow_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """It is copied into the file beside the commits, and begun anew."""
    monkeypatch.setattr(disks, "COMMITS_PER_CHECKPOINT", 20)
    monkeypatch.setattr(disks, "RESTART_PAGES", 50)

    async def story() -> int:
        store = Store(f"sqlite:///{tmp_path}/x.sqlite", group_commit=True)
        try:
            largest = 0
            for number in range(2000):
                with store.transaction() as write:
                    write.revision(number)
                await store.disk.reached(store.disk.written)
                largest = max(largest, (tmp_path / "x.sqlite-wal").stat().st_size)
            return largest
        finally:
            store.close()

    assert (
        asyncio.run(story()) < 1000 * 4096
    )  # two thousand commits would have taken two thousand pages and more


def test_what_nobody_waited_for_is_on_disk_at_the_end(tmp_path: Path, slow_disk: SlowDisk):
    store = Store(f"sqlite:///{tmp_path}/x.sqlite", group_commit=True)
    with store.transaction() as write:
        write.revision(7)
    assert store.disk.on_disk < store.disk.written
    store.close()
    assert (store.disk.on_disk, slow_disk.begun.acquire(blocking=False)) == (
        store.disk.written,
        True,
    )
    store = Store(f"sqlite:///{tmp_path}/x.sqlite")
    assert store.load().revision == 7
    store.close()


def test_who_leaves_while_waiting_holds_nobody_up(tmp_path: Path, slow_disk: SlowDisk):
    async def story() -> None:
        store = Store(f"sqlite:///{tmp_path}/x.sqlite", group_commit=True)
        slow_disk.open.clear()
        with store.transaction() as write:
            write.revision(1)
        waiting = [asyncio.create_task(store.disk.reached(1)) for _ in range(3)]
        await asyncio.to_thread(slow_disk.begun.acquire)
        waiting[0].cancel()
        await asyncio.sleep(0)
        slow_disk.open.set()
        await asyncio.wait_for(asyncio.gather(*waiting[1:]), TIMEOUT_S)
        store.close()

    asyncio.run(story())


def test_a_database_that_syncs_by_itself_keeps_nobody_waiting(tmp_path: Path):
    store = Store(f"sqlite:///{tmp_path}/x.sqlite")
    with store.transaction() as write:
        write.revision(1)
    assert store.disk.on_disk == store.disk.written == 1
    asyncio.run(store.disk.reached(1))
    store.close()
    assert GroupCommit().written == 0
