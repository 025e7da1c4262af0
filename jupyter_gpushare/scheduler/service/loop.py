"""The service's only clock: runs a cycle when something changed, ticks every second, and watches
the policy file.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from jupyter_gpushare.aio import BackgroundTasks
from jupyter_gpushare.core.model.decisions import Decisions
from jupyter_gpushare.core.model.errors import GpuShareError, Unavailable

from ..policy.policy_file import LoadedPolicy, PolicyErrors, load_policy
from ..store.store import Retention
from .service import SchedulerService

__all__ = ["SchedulingLoop"]

log = logging.getLogger("gpushare.scheduler")
PERIOD: Final = 1.0
"""Seconds between ticks: time alone changes fair shares, protection from eviction and stale gangs.
(The period of the KAI scheduler.)
"""
LAG_PERIOD: Final = 0.25
"""Seconds between two measurements of the event loop's lag."""
CYCLE_SHARE: Final = 0.25
"""The part of the processor's time that cycles may take while requests keep coming: those that
arrive while they rest are decided together.
"""
LONGEST_REST: Final = 0.01
"""Seconds by which a request is delayed at most for it."""
PAUSE: Final = 0.02
"""Seconds between two batches of published queue changes: publishing takes a few percent of the
time, and a request in between waits for one batch.
"""

QUEUE_SHARE: Final = 0.05
"""The part of the processor's time that published queue changes may take: with ten thousand
pending workloads they are published every few seconds instead of every second.
"""


class Stopwatch:
    """Seconds of each lap by name; the time before the first lap belongs to it."""

    def __init__(self) -> None:
        self.begun = self._last = time.perf_counter()
        self.laps: dict[str, float] = {}

    def lap(self, name: str) -> None:
        now = time.perf_counter()
        self.laps[name], self._last = now - self._last, now


class SchedulingLoop:
    """Drives a service on the running event loop. Requests that arrive together are decided
    together, in the next iteration of the loop.
    """

    def __init__(
        self,
        service: SchedulerService,
        policy_file: Path | None = None,
        *,
        retention: Retention | None = None,
    ) -> None:
        """`retention`: for how long ended workloads are kept; None: forever."""
        self.service, self.policy_file, self.retention = service, policy_file, retention
        self.observe: Callable[[Decisions, dict[str, float]], None] = lambda _decisions, _seconds: (
            None
        )
        """Called after every committed cycle with the seconds of each action, and of "all"."""
        self.on_lag: Callable[[float], None] = lambda _seconds: None
        """Called several times a second with the delay of a timer in seconds."""
        self.tidy: Callable[[], object] = lambda: None
        """Called at the end of every tick."""
        self._woken = asyncio.Event()
        self._retry: asyncio.TimerHandle | None = None
        self._tasks = BackgroundTasks(log, level=logging.CRITICAL)
        self._seen = self._stamp()
        self.extend: Callable[[LoadedPolicy], LoadedPolicy] = lambda loaded: loaded
        """Adds to the policy what other sources define: projects of a JupyterHub's groups."""
        self._stated = service.unit_of_work.loaded
        self._is_extension_due = False

    def start(self) -> None:
        self.service.unit_of_work.on_change = self.wake
        self._tasks.spawn(self._run(), name="gpushare-scheduler-loop")
        self._tasks.spawn(self._publish_queue(), name="gpushare-scheduler-telling")
        self._tasks.spawn(self._measure_lag(), name="gpushare-scheduler-lag")
        self.wake()

    async def stop(self) -> None:
        self._retry_at(None)
        await self._tasks.close()

    def wake(self) -> None:
        self._woken.set()

    async def _run(self) -> None:
        ticked, rested = time.monotonic(), 0.0
        while True:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(
                    self._woken.wait(), max(0, ticked + PERIOD - time.monotonic())
                )
            await asyncio.sleep(max(0.0, rested - time.monotonic()))
            self._woken.clear()
            is_tick = (
                time.monotonic() - ticked >= PERIOD
            )  # measured by the clock: a service that is woken all the time still ticks
            if is_tick:
                ticked = time.monotonic()
            begun = time.thread_time()
            try:
                self.turn(is_tick=is_tick)
            except GpuShareError as error:
                log.error("no decisions: %s", error.message)
                await asyncio.sleep(PERIOD / 4)  # the store may be back soon
            except Exception:
                log.exception("a cycle failed and was undone")
                await asyncio.sleep(PERIOD)
            rest = (time.thread_time() - begun) * (1 / CYCLE_SHARE - 1)
            rested = time.monotonic() + min(LONGEST_REST, rest)

    async def _measure_lag(self) -> None:
        """A timer that fires late shows how long calls wait for their turn."""
        while True:
            due = time.monotonic() + LAG_PERIOD
            await asyncio.sleep(LAG_PERIOD)
            self.on_lag(max(0.0, time.monotonic() - due))

    async def _publish_queue(self) -> None:
        pause = PERIOD
        while True:
            await asyncio.sleep(pause)
            used = 0.0
            try:
                begun = time.thread_time()
                for _ in self.service.pending_status.publish_changes():
                    used += time.thread_time() - begun
                    await asyncio.sleep(PAUSE)
                    begun = time.thread_time()
                pause = max(PERIOD, used / QUEUE_SHARE)
            except Exception:
                log.exception("queue changes could not be published; the next attempt is in %.0f s")

    def turn(self, *, is_tick: bool) -> None:
        """One iteration; on a tick also what time alone changes."""
        if is_tick:
            self.reload_policy()
            self.service.tick(self.service.unit_of_work.clock())
        if self.service.unit_of_work.needs_cycle or (is_tick and self.service.is_waiting):
            watch = Stopwatch()
            decisions = self.service.run_cycle(watch.lap)
            watch.laps["all"] = time.perf_counter() - watch.begun
            self._retry_at(decisions.retry_at)
            self.observe(decisions, watch.laps)
        if is_tick:
            self._delete_old()
            self.tidy()

    def _retry_at(self, moment: int | None) -> None:
        """Runs another cycle at this time (ms): a protected turn ends."""
        if self._retry is not None:
            self._retry.cancel()
            self._retry = None
        if moment is not None:
            pause = max(0, moment - self.service.unit_of_work.clock()) / 1000
            loop = asyncio.get_running_loop()
            self._retry = loop.call_later(pause, self.service.unit_of_work.wake)

    def _delete_old(self) -> None:
        """Deletes a little at every tick, so that no deletion delays a decision for long."""
        if self.retention is None:
            return
        windows = [
            pool.time_based.window
            for pool in self.service.unit_of_work.loaded.policy.node_pools
            if pool.time_based
        ]
        with contextlib.suppress(Unavailable):  # tried again in a second
            self.service.unit_of_work.store.prune(
                self.retention.before(self.service.unit_of_work.clock(), max(windows, default=0))
            )

    def reload_policy(self, *, force: bool = False) -> None:
        """Puts a changed policy file into force, as a whole or not at all."""
        stamp = self._stamp()
        if self.policy_file is None or (stamp == self._seen and not force):
            if self._is_extension_due:
                self.extend_again()
            return
        loaded = self._read(self.policy_file)
        if loaded is not None:
            if not self._use(self.extend(loaded)):
                return  # tried again at the next tick
            self._stated, self._is_extension_due = loaded, False
        self._seen = stamp

    def extend_again(self) -> None:
        """Another source of the policy has changed; the file has not."""
        self._is_extension_due = not self._use(
            self.extend(self._stated)
        )  # if not, at the next tick

    def _use(self, loaded: LoadedPolicy) -> bool:
        """False: the store does not answer. Scheduling continues under the old policy."""
        try:
            self.service.use_policy(loaded)
        except Unavailable as error:
            log.error("policy %s is not in force yet: %s", loaded.source, error.message)
            return False
        log.info("policy %s is in force", loaded.source)
        return True

    def _read(self, path: Path) -> LoadedPolicy | None:
        try:
            return load_policy(path)
        except PolicyErrors as error:
            problems = [str(problem) for problem in error.problems]
        except (OSError, GpuShareError) as error:
            problems = [f"{path}: {error}"]
        for problem in problems:
            log.error("policy refused, the old one stays in force: %s", problem)
        self.service.refuse_policy(problems)
        return None

    def _stamp(self) -> tuple[int, int] | None:
        """Modification time and size of the file; None: it does not exist."""
        if self.policy_file is None:
            return None
        try:
            stat = self.policy_file.stat()
        except OSError:
            return None
        return stat.st_mtime_ns, stat.st_size
