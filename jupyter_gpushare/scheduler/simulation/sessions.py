"""Notebooks in virtual time: people think, run a cell, and think again, while the scheduler's
cycles decide whose turn it is.

The agent's part is reduced to what takes time: a turn that displaces memory, or restores it, begins
after one copy (both directions run at once) and `overhead`. A cell that waits is reported at once.
Format and result: docs/reference/files.md, Notebooks in virtual time.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import Final, Literal

from jupyter_gpushare.core.cluster.cluster import Cluster
from jupyter_gpushare.core.cycle.cycle import cycle
from jupyter_gpushare.core.model.activity import Activity
from jupyter_gpushare.core.model.decisions import Decisions, Evict
from jupyter_gpushare.core.model.events import (
    ActivityReported,
    PodReleased,
    WorkloadHeld,
    WorkloadSubmitted,
)
from jupyter_gpushare.core.model.model import Workload

__all__ = ["Notebook", "Session", "Wait"]

Step = Literal["arrive", "begin", "end", "retry"]
NOBODY: Final = ""


@dataclass(frozen=True, slots=True)
class Notebook:
    """One person with one notebook. Times in ms: how long it thinks and its cells run, drawn anew
    each time; `copy_ms`: one direction, of all its memory.
    """

    workload: Workload
    think: Callable[[random.Random], int]
    cell: Callable[[random.Random], int]
    copy_ms: int = 0
    is_pinned: bool = False


@dataclass(frozen=True, slots=True)
class Wait:
    """One cell: when it arrived at the gate, how long it waited, and how long it ran."""

    notebook: str
    arrived: int
    waited: int
    ran: int
    ahead: int
    """Cells that waited when it arrived."""


@dataclass(slots=True)
class _Seat:
    """What one notebook does now."""

    notebook: Notebook
    waits_since: int | None = None
    ahead: int = 0
    has_share: bool = False
    is_busy: bool = False
    idle_since: int = 0
    turn_since: int = 0
    is_saved: bool = False
    """Its memory is in host memory."""
    displaced_ms: int = 0
    """Copy of those that gave way for it."""
    version: int = 0


@dataclass(slots=True)
class Session:
    """Runs notebooks on a cluster until a time. `watch` sees every eviction before it happens."""

    cluster: Cluster
    notebooks: Iterable[Notebook]
    seed: int = 1
    overhead_ms: int = 0
    watch: Callable[[int, Evict, Activity], None] = lambda _now, _evict, _activity: None
    waits: list[Wait] = field(default_factory=list)
    _seats: dict[str, _Seat] = field(default_factory=dict)
    _heap: list[tuple[int, int, Step, str]] = field(default_factory=list)
    _count: int = 0
    _random: random.Random = field(default_factory=random.Random)

    def run(self, until: int) -> list[Wait]:
        """All cells that began before this time (ms)."""
        self._random = random.Random(self.seed)
        for notebook in self.notebooks:
            self.cluster.apply(WorkloadSubmitted(notebook.workload))
            self._seats[notebook.workload.id] = _Seat(notebook)
            self._think(notebook.workload.id, 0)
        while self._heap and self._heap[0][0] <= until:
            now = self._heap[0][0]
            while self._heap and self._heap[0][0] == now:
                _, _, step, name = heappop(self._heap)
                self._step(step, name, now)
            self._decide(now)
        return self.waits

    def unserved(self, now: int) -> list[tuple[str, int]]:
        """Notebooks whose cells still wait, and for how long (ms)."""
        waiting = [(name, seat.waits_since) for name, seat in self._seats.items()]
        return [(name, now - since) for name, since in waiting if since is not None]

    def _at(self, time: int, step: Step, name: str) -> None:
        self._count += 1
        heappush(self._heap, (time, self._count, step, name))

    def _think(self, name: str, now: int) -> None:
        notebook = self._seats[name].notebook
        self._at(now + max(1, notebook.think(self._random)), "arrive", name)

    # ---- what notebooks do ----------------------------------------------------------------------

    def _step(self, step: Step, name: str, now: int) -> None:
        match step:
            case "arrive":
                self._arrive(self._seats[name], name, now)
            case "begin":
                self._begin(self._seats[name], name, now)
            case "end":
                seat = self._seats[name]
                seat.is_busy, seat.idle_since = False, now
                self._report(seat, name)
                self._think(name, now)
            case "retry":
                pass

    def _arrive(self, seat: _Seat, name: str, now: int) -> None:
        seat.ahead = sum(other.waits_since is not None for other in self._seats.values())
        seat.waits_since = now
        if seat.has_share:
            self._begin(seat, name, now)
            return
        if self.cluster.workloads[name].held:
            self.cluster.apply(WorkloadHeld(name, held=False))
        self._report(seat, name)

    def _begin(self, seat: _Seat, name: str, now: int) -> None:
        """Its cell runs."""
        assert seat.waits_since is not None
        length = max(1, seat.notebook.cell(self._random))
        self.waits.append(Wait(name, seat.waits_since, now - seat.waits_since, length, seat.ahead))
        seat.waits_since, seat.is_busy = None, True
        self._report(seat, name)
        self._at(now + length, "end", name)

    def _report(self, seat: _Seat, name: str) -> None:
        in_use = seat.is_busy or seat.waits_since is not None or not seat.has_share
        activity = Activity(
            waits_since=seat.waits_since,
            idle_since=None if in_use else seat.idle_since,
            turn_since=seat.turn_since if seat.has_share else None,
            copy_ms=seat.notebook.copy_ms,
            is_pinned=seat.notebook.is_pinned,
        )
        self.cluster.apply(ActivityReported(name, activity))

    # ---- what the scheduler decides -------------------------------------------------------------

    def _decide(self, now: int) -> None:
        """Cycles until nothing changes; what gives way leaves at once."""
        while True:
            decisions = cycle(self.cluster, now)
            self._evict(decisions, now)
            for bind in decisions.binds:
                self._grant(self._seats[bind.workload], bind.workload, now)
            if decisions.retry_at is not None and decisions.retry_at > now:
                self._at(decisions.retry_at, "retry", NOBODY)
            if not decisions.evictions:
                return

    def _evict(self, decisions: Decisions, now: int) -> None:
        for evict in decisions.evictions:
            seat = self._seats[evict.workload]
            self.watch(now, evict, self.cluster.workloads[evict.workload].activity)
            self.cluster.apply(PodReleased(evict.workload, evict.pod))
            if evict.action == "rotate":
                self.cluster.apply(WorkloadHeld(evict.workload, held=True))
            seat.has_share, seat.is_saved = False, True
            by = self._seats.get(evict.by or NOBODY)
            if by is not None:
                by.displaced_ms = max(by.displaced_ms, seat.notebook.copy_ms)

    def _grant(self, seat: _Seat, name: str, now: int) -> None:
        own = seat.notebook.copy_ms if seat.is_saved else 0
        copy = max(own, seat.displaced_ms)
        delay = copy + (self.overhead_ms if copy or seat.displaced_ms else 0)
        seat.has_share, seat.is_saved, seat.displaced_ms = True, False, 0
        seat.turn_since, seat.idle_since = now + delay, now + delay
        self._report(seat, name)
        if seat.waits_since is not None:
            self._at(now + delay, "begin", name)
