"""The result of a cycle: pods to bind, pods that are promised a place, evictions, and reasons for
the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from .amounts import Amounts
from .model import Spot
from .reason import Reason

__all__ = ["Bind", "Decisions", "Evict", "Pipeline", "QueueShare", "Replan", "WhatIf"]


@dataclass(frozen=True, slots=True)
class Bind:
    """Start this pod now; everything that it needs is free."""

    workload: str
    pod: str
    spot: Spot


@dataclass(frozen=True, slots=True)
class Pipeline:
    """This pod is promised a place where other pods are being evicted.

    There is nothing to do yet, and later cycles may decide otherwise.
    """

    workload: str
    pod: str
    spot: Spot


@dataclass(frozen=True, slots=True)
class Replan:
    """Plan this running pod on other devices of its node. It is not evicted."""

    workload: str
    pod: str
    spot: Spot


@dataclass(frozen=True, slots=True)
class Evict:
    """Evict this pod.

    `action` is the action of the cycle, `by` the workload that it makes room for (None: stale
    gang), `message` a sentence for the owner.
    """

    workload: str
    pod: str
    spot: Spot
    action: str
    by: str | None
    message: str


@dataclass(frozen=True, slots=True)
class QueueShare:
    """One queue in one pool at the end of a cycle, per resource: a row of `GET queues`."""

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
    """The result of one cycle, which the cluster already reflects.

    `reasons` and `positions` (1 = next in its pool) have an entry for every workload with pending
    pods that was not bound. If a commit fails, the caller rolls the cluster back to its checkpoint.

    Reading one position computes all of them, which takes long with ten thousand pending workloads.
    Callers that must not block iterate over `count_positions()` first, or call `peek`, which
    returns the reason, and the position only if it is already known or few workloads are pending.
    """

    binds: tuple[Bind, ...]
    pipelines: tuple[Pipeline, ...]
    evictions: tuple[Evict, ...]
    reasons: Mapping[str, Reason]
    positions: Mapping[str, int]
    queues: Sequence[QueueShare]
    count_positions: Callable[[], Iterator[None]] = lambda: iter(())
    peek: Callable[[str], tuple[Reason | None, int | None]] = lambda _: (None, None)
    replans: tuple[Replan, ...] = ()
    retry_at: int | None = None
    """When (ms) the next cycle can do more: a protected turn ends for which a workload waits, or
    what is kept free for a booking has moved. None: not before something happens.
    """


@dataclass(frozen=True, slots=True)
class WhatIf:
    """What would happen to a workload if it were submitted: where it would start and which pods it
    would evict, or why it would wait.
    """

    starts_now: bool
    """It would be bound at once on free resources."""
    after_eviction: bool
    """It would start when the evicted pods have released their GPUs."""
    spots: Mapping[str, Spot]
    displaces: tuple[Evict, ...]
    reason: Reason | None
