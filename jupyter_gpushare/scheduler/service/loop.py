"""The only clock of the service: runs a cycle as soon as something changed, ticks every second, and
watches the policy file.
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
"""Seconds between ticks: time alone changes fair shares, protections and stale gangs. KAI-Scheduler
uses the same period.
"""
PAUSE: Final = 0.02
"""Seconds between two breaths of telling those who wait how their place has changed: it takes a few
percent of the time at most, and a request that comes meanwhile waits for one breath.
"""


class Stopwatch:
    """Seconds of each lap by its name; what comes before the first (taking over, fair shares)
    belongs to it.
    """

    def __init__(self) -> None:
        self.begun = self._last = time.perf_counter()
        self.laps: dict[str, float] = {}

    def lap(self, name: str) -> None:
        now = time.perf_counter()
        self.laps[name], self._last = now - self._last, now


class SchedulingLoop:
    """Drives a service on the running event loop. Requests that arrive together are decided
    together, at the next turn of the loop.
    """

    def __init__(
        self,
        service: SchedulerService,
        policy_file: Path | None = None,
        *,
        retention: Retention | None = None,
    ) -> None:
        """`retention`: for how long what has ended is remembered; None: ever."""
        self.service, self.policy_file, self.retention = service, policy_file, retention
        self.observe: Callable[[Decisions, dict[str, float]], None] = lambda _decisions, _seconds: (
            None
        )
        """Is told of every cycle that was committed, and how many seconds each of its actions took,
        and "all" of it.
        """
        self.tidy: Callable[[], object] = lambda: None
        """Is called at every tick, when everything else is done."""
        self._woken = asyncio.Event()
        self._tasks = BackgroundTasks(log, level=logging.CRITICAL)
        self._seen = self._stamp()
        self.extend: Callable[[LoadedPolicy], LoadedPolicy] = lambda loaded: loaded
        """What somebody beside the policy file adds to it: projects that a JupyterHub's groups
        stand for.
        """
        self._stated = service.unit_of_work.loaded
        self._is_extension_due = False

    def start(self) -> None:
        self.service.unit_of_work.on_change = self.wake
        self._tasks.spawn(self._run(), name="gpushare-scheduler-loop")
        self._tasks.spawn(self._tell(), name="gpushare-scheduler-telling")
        self.wake()

    async def stop(self) -> None:
        await self._tasks.close()

    def wake(self) -> None:
        self._woken.set()

    async def _run(self) -> None:
        ticked = time.monotonic()
        while True:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(
                    self._woken.wait(), max(0, ticked + PERIOD - time.monotonic())
                )
            self._woken.clear()
            is_tick = (
                time.monotonic() - ticked >= PERIOD
            )  # by the clock: a service that is woken all the time ticks as well
            if is_tick:
                ticked = time.monotonic()
            try:
                self.turn(is_tick=is_tick)
            except GpuShareError as error:
                log.error("nothing was decided: %s", error.message)
                await asyncio.sleep(
                    PERIOD / 4
                )  # the store may be back soon; what waits keeps waiting
            except Exception:
                log.exception("a cycle failed; everything is as it was before")
                await asyncio.sleep(PERIOD)

    async def _tell(self) -> None:
        while True:
            await asyncio.sleep(PERIOD)
            try:
                for _ in self.service.pending_status.telling():
                    await asyncio.sleep(PAUSE)
            except Exception:
                log.exception(
                    "those who wait could not be told of a change; they are told at the next one"
                )

    def turn(self, *, is_tick: bool) -> None:
        """One turn: on a tick also what time alone changes."""
        if is_tick:
            self.reload_policy()
            self.service.tick(self.service.unit_of_work.clock())
        if self.service.unit_of_work.needs_cycle or (is_tick and self.service.is_waiting):
            watch = Stopwatch()
            decisions = self.service.run_cycle(watch.lap)
            watch.laps["all"] = time.perf_counter() - watch.begun
            self.observe(decisions, watch.laps)
        if is_tick:
            self._forget()
            self.tidy()

    def _forget(self) -> None:
        """A little at every tick, so that no deletion holds up a decision for long."""
        if self.retention is None:
            return
        windows = [
            pool.time_based.window
            for pool in self.service.unit_of_work.loaded.policy.node_pools
            if pool.time_based
        ]
        with contextlib.suppress(
            Unavailable
        ):  # it will be tried again in a second, and nobody waits for it
            self.service.unit_of_work.store.prune(
                self.retention.before(self.service.unit_of_work.clock(), max(windows, default=0))
            )

    def reload_policy(self, *, force: bool = False) -> None:
        """Takes a changed policy file into force, whole or not at all."""
        stamp = self._stamp()
        if self.policy_file is None or (stamp == self._seen and not force):
            if self._is_extension_due:
                self.extend_again()
            return
        loaded = self._read(self.policy_file)
        if loaded is not None:
            if not self._take(self.extend(loaded)):
                return  # tried again at the next tick
            self._stated, self._is_extension_due = loaded, False
        self._seen = stamp

    def extend_again(self) -> None:
        """What is added to the policy is something else now. The file, or the policy in its place,
        is as it was.
        """
        self._is_extension_due = not self._take(self.extend(self._stated))  # then at the next tick

    def _take(self, loaded: LoadedPolicy) -> bool:
        """False: not now, because the store does not answer. Decisions go on meanwhile under the
        old policy.
        """
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
        """What changes when the file is written: its time and size; None: it is not there."""
        if self.policy_file is None:
            return None
        try:
            stat = self.policy_file.stat()
        except OSError:
            return None
        return stat.st_mtime_ns, stat.st_size
