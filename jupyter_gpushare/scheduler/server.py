"""Assembles, starts and stops the service: store, policy, service, loop, event stream, agent
sessions, tokens, metrics, router.

Used by the stand-alone process (`app`) and by embedded mode; it does not listen on sockets.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, Protocol

from jupyter_gpushare.addresses import SCHEDULER_LOCK
from jupyter_gpushare.core.model.decisions import Decisions
from jupyter_gpushare.core.model.errors import Unavailable

from .api.agent_sessions import AgentSessions
from .api.event_stream import EventStream
from .api.router import Router
from .auth.authentication import Authenticator
from .auth.identity import Groups, TokenService
from .auth.rate_limits import GENEROUS, RateLimits
from .policy.policy_file import LoadedPolicy, load_policy, parse_policy
from .service.loop import SchedulingLoop
from .service.metrics import Metrics
from .service.pod_budget import PodBudget
from .service.service import SchedulerService
from .store.database import file_in
from .store.leadership import Leadership
from .store.locks import lock_of, only_one
from .store.retention import ENDED_PER_USER
from .store.store import Retention, Store

__all__ = ["BUILT_IN_POLICY", "SchedulerServer", "make_state_dir", "own_database", "wall_clock"]

log = logging.getLogger("gpushare.scheduler")
BUILT_IN_POLICY: Final = "projects: [{name: shared}]\n"
"""Without a policy file: one project for everybody that shares all GPUs."""

DAY_MS: Final = 24 * 3600 * 1000
RETENTION: Final = Retention(90 * DAY_MS, 90 * DAY_MS, 90 * DAY_MS, per_user=ENDED_PER_USER)
"""For how long ended workloads, events and usage are kept."""


def wall_clock() -> int:
    """Milliseconds since the epoch."""
    return time.time_ns() // 1_000_000


class BackgroundService(Protocol):
    def start(self) -> None: ...
    async def stop(self) -> None: ...


class SchedulerServer:
    """A scheduler, not started yet. Raises PolicyProblems, StoreUnavailable, and Unavailable if
    another scheduler uses this directory.
    """

    def __init__(
        self,
        state_dir: Path,
        *,
        policy_file: Path | None = None,
        policy: LoadedPolicy | None = None,
        db_url: str | None = None,
        clock: Callable[[], int] = wall_clock,
        groups_of: Groups = lambda _: (),
        open_metrics: bool = True,
        retention: Retention = RETENTION,
        limits: RateLimits = GENEROUS,
        upgrade: bool = True,
        leadership: Leadership | None = None,
        group_commit: bool = False,
    ) -> None:
        """`upgrade`: migrate tables of an older version. `leadership`: of this process, if several
        may share the store. `group_commit`: see `Store`; for a service with many callers.
        """
        make_state_dir(state_dir)
        loaded = policy or (
            load_policy(policy_file) if policy_file else parse_policy(BUILT_IN_POLICY, "built in")
        )
        self._locks = contextlib.ExitStack()
        self.over = asyncio.Event()
        """No more commits are possible: another scheduler leads, or memory and store may differ."""
        with contextlib.ExitStack() as undone:
            undone.enter_context(self._locks)
            url = self._locked(state_dir, db_url)
            self.store = Store(url, upgrade=upgrade, group_commit=group_commit)
            undone.callback(self.store.close)
            self.store.on_stopped = self._give_up
            if leadership is not None:
                self.store.fence = leadership.check
            self.events = EventStream(disk=self.store.disk)
            self.service = SchedulerService(
                self.store,
                loaded,
                self.events,
                clock=clock,
                pod_budget=PodBudget(
                    limits.pods_per_user, limits.pods_per_workload, limits.pods_without_gpu
                ),
                output_per_user=limits.output_per_user,
            )
            undone.pop_all()
        self.events.connect(self.service.queries)
        self.loop = SchedulingLoop(self.service, policy_file, retention=retention)
        self.agents = AgentSessions(self.service)
        self.tokens = TokenService(self.store, clock, groups_of)
        self.service.booking_feeds.groups_of = groups_of
        self.limits = limits
        self.authenticator = Authenticator(self.tokens)
        self.background_services: list[BackgroundService] = []
        """Services that start and stop with this one."""
        self.metrics = Metrics(self.service)
        self.decided = asyncio.Event()
        """The first cycle has run."""
        self.loop.observe = self._observe
        self.loop.on_lag = self.metrics.lag
        self.agents.on_report = self.metrics.report
        self.router = Router(
            self.service,
            self.tokens,
            metrics=self.metrics.text,
            is_ready=self.decided.is_set,
            open_metrics=open_metrics,
            longest_body=limits.body_bytes,
        )

    def _locked(self, state_dir: Path, db_url: str | None) -> str:
        """Locks this directory and the database file against other schedulers. Returns the URL of
        the database.
        """
        own = state_dir / "scheduler.sqlite"
        self._locks.callback(
            os.close,
            only_one(
                state_dir / SCHEDULER_LOCK,
                "another scheduler runs in this state directory",
                state_dir,
            ),
        )
        file = file_in(db_url) if db_url else own
        if (
            file is not None
            and file.with_suffix(".lock").absolute() != (state_dir / SCHEDULER_LOCK).absolute()
        ):
            self._locks.callback(os.close, lock_of(file))
        return db_url or own_database(own)

    def _give_up(self, why: str) -> None:
        log.error("this scheduler steps down: %s", why)
        self.over.set()

    def start(self) -> None:
        """Starts scheduling, on the running event loop."""
        self.store.disk.start()
        self.loop.start()
        for one in self.background_services:
            one.start()

    def _observe(self, decisions: Decisions, seconds: dict[str, float]) -> None:
        self.metrics.cycle(decisions, seconds)
        self.decided.set()

    async def stop(self) -> None:
        """Ends streams and sessions, stops scheduling, closes the store. Leases stay in force."""
        self.events.close()
        self.agents.close()
        for one in self.background_services:
            await one.stop()
        await self.loop.stop()
        with contextlib.suppress(Unavailable):
            self.service.reports.write_usage()
        self.store.close()
        self._locks.close()


def make_state_dir(state_dir: Path) -> None:
    """Creates a directory for its owner only. Raises Unavailable."""
    try:
        state_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        os.close(os.open(state_dir / SCHEDULER_LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
    except OSError as error:
        raise Unavailable(
            f"the state directory cannot be used: {error.strerror or error}", field=str(state_dir)
        ) from error


def own_database(file: Path) -> str:
    """URL of the default database. It contains requests and hashes of tokens: readable by its owner
    only, whatever the umask.
    """
    file.touch(mode=0o600)
    return f"sqlite:///{file}"
