"""What a cycle says: what to bind, promise and evict, and why everybody else waits. Values only."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from .amounts import Amounts
from .model import Spot
from .reason import Reason

__all__ = ["Bind", "Decisions", "Evict", "Pipeline", "QueueShare", "WhatIf"]


@dataclass(frozen=True, slots=True)
class Bind:
    """Start this pod here now: everything that it needs is free."""

    workload: str
    pod: str
    spot: Spot


@dataclass(frozen=True, slots=True)
class Pipeline:
    """This pod is promised a place where others are being evicted. Nothing to do yet; later cycles
    may decide otherwise.
    """

    workload: str
    pod: str
    spot: Spot


@dataclass(frozen=True, slots=True)
class Evict:
    """Take this pod's place away. `action` is the action of the cycle, `by` the workload that it
    makes room for (None: stale gang), `message` a sentence for the person who loses it.
    """

    workload: str
    pod: str
    spot: Spot
    action: str
    by: str | None
    message: str


@dataclass(frozen=True, slots=True)
class QueueShare:
    """One queue in one pool, as the cycle saw it: what `GET queues` shows, per resource."""

    queue: str
    kind: str
    """"department" or "project"."""
    pool: str
    quota: Amounts
    limit: Amounts
    fair_share: Amounts
    allocated: Amounts
    requested: Amounts


@dataclass(frozen=True, slots=True)
class Decisions:
    """One cycle's result. `reasons` and `positions` (1 = next in its pool) have an entry for every
    workload with pending pods that was not bound. The cluster has already been changed accordingly:
    a commit that fails must be undone by the caller's journal mark.

    Reading one place counts all of them, which takes a while where ten thousand wait. Who must not
    hold others up lets `counting` run bit by bit first, or takes a `glimpse`: the reason, and the
    place only if it is known by then (or few wait).
    """

    binds: tuple[Bind, ...]
    pipelines: tuple[Pipeline, ...]
    evictions: tuple[Evict, ...]
    reasons: Mapping[str, Reason]
    positions: Mapping[str, int]
    queues: Sequence[QueueShare]
    counting: Callable[[], Iterator[None]] = lambda: iter(())
    glimpse: Callable[[str], tuple[Reason | None, int | None]] = lambda _: (None, None)


@dataclass(frozen=True, slots=True)
class WhatIf:
    """What would happen to a workload that was not submitted: where it would start now, whom it
    would displace, else why not.
    """

    starts_now: bool
    """Bound at once on free resources."""
    after_eviction: bool
    """It would start when the displaced pods have let go."""
    spots: Mapping[str, Spot]
    displaces: tuple[Evict, ...]
    reason: Reason | None
