"""Background tasks are kept and their failures logged; back-off doubles within its bounds."""

from __future__ import annotations

import asyncio
import gc
import logging
import weakref

import pytest

from jupyter_gpushare.aio import BackgroundTasks, Backoff

log = logging.getLogger("gpushare.test")


def test_a_failed_task_is_logged_with_its_name(caplog: pytest.LogCaptureFixture) -> None:
    async def fail() -> None:
        raise ValueError("no such thing")

    async def main() -> None:
        tasks = BackgroundTasks(log)
        tasks.spawn(fail(), name="reader")
        await tasks.wait()
        await asyncio.sleep(0)
        assert len(tasks) == 0

    asyncio.run(main())
    (record,) = caplog.records
    assert record.message == "background task reader failed: no such thing"
    assert record.exc_info is not None


def test_tasks_survive_garbage_collection() -> None:
    async def main() -> None:
        tasks, done = BackgroundTasks(log), asyncio.Event()

        async def work() -> None:
            await asyncio.sleep(0.01)
            done.set()

        known = weakref.ref(tasks.spawn(work()))
        gc.collect()
        assert known() is not None
        await asyncio.wait_for(done.wait(), 60)

    asyncio.run(main())


def test_close_cancels_and_waits(caplog: pytest.LogCaptureFixture) -> None:
    ended: list[str] = []

    async def forever(name: str) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            ended.append(name)

    async def main() -> None:
        tasks = BackgroundTasks(log)
        for name in ("a", "b"):
            tasks.spawn(forever(name))
        await tasks.wait(timeout_s=0.01)
        assert len(tasks) == 2, "wait cancels nothing"
        await tasks.close()
        assert sorted(ended) == ["a", "b"]

    asyncio.run(main())
    assert not caplog.records, "a cancelled task has not failed"


def test_pauses_double_up_to_the_longest_and_start_again_after_a_reset() -> None:
    backoff = Backoff(1.0, 5.0)
    for full in (1.0, 2.0, 4.0, 5.0, 5.0):
        assert full / 2 <= backoff.next_s() <= full
    backoff.reset()
    assert backoff.next_s() <= 1.0
