"""The order of people inside a project: who has used least is served first, and waiting counts.

Everybody has a score, and the smallest is served first:

    usage / weight - CREDIT * time waited + HEADSTART * share held / weight

Usage is GPU time held, which decays by half in every half-life. A person earns the credit while a
request waits and nothing is held; so nobody waits indefinitely for others to catch up, and more
requests do not earn more. A share that is held counts for `HEADSTART` more than it has been held,
so that requests at the same time do not all pass before the first of them has cost anything. A
person who was away starts at the least usage of those who were not.

Shares are milli-GPU, times ms, usage milli-GPU-ms, weights thousandths; all are integers. Formulas:
docs/explanation/scheduling.md, People.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from heapq import heapify, heappop, heappush
from typing import Final, NamedTuple

__all__ = ["AWAY", "CREDIT", "EVERYBODY", "PersonUsage", "Standing", "Waiter", "waiting_order"]

CREDIT: Final = 300
"""Milli-GPU: what a person earns per ms of waiting."""
HEADSTART: Final = 10_000
"""ms that a share counts for when it is granted."""
AWAY: Final = 600_000
"""ms without a share or a waiting request after which a person has been away. Shorter pauses, such
as thinking between two cells, are part of a person's work: to raise the usage after each of them
would favour people who never pause.
"""
EVERYBODY: Final = 1000
"""The weight of a person without a stated one."""


class PersonUsage(NamedTuple):
    """What a person has used of a pool in a project, decayed until `at`; `served` is the last time
    at which a share was held.
    """

    used: int = 0
    at: int = 0
    served: int | None = None

    def until(self, now: int, held: int, half_life: int) -> PersonUsage:
        """The usage at a later time, with this share held since `at`. `half_life` 0: no decay."""
        age = now - self.at
        if age <= 0:
            return self
        served = now if held else self.served
        if half_life <= 0:
            return PersonUsage(self.used + held * age, now, served)
        left = math.exp2(-age / half_life)
        gained = held * half_life / math.log(2) * (1 - left)
        return PersonUsage(round(self.used * left + gained), now, served)

    def at_least(self, least: int, weight: int) -> PersonUsage:
        """Raised to this usage of a person of weight 1, for a person who was away."""
        return self._replace(used=max(self.used, least * weight // EVERYBODY))

    def per_weight(self, weight: int) -> int:
        return self.used * EVERYBODY // weight


class Standing(NamedTuple):
    """A person in the order: the usage now, the share, and since when a request waits."""

    usage: PersonUsage
    weight: int = EVERYBODY
    held: int = 0
    waits_since: int = 0

    def score(self, now: int) -> int:
        """Smallest first."""
        if self.held:
            return (self.usage.used + self.held * HEADSTART) * EVERYBODY // self.weight
        served = self.usage.served
        since = self.waits_since if served is None else max(self.waits_since, served)
        return self.usage.per_weight(self.weight) - CREDIT * max(0, now - since)

    def with_share(self, share: int) -> Standing:
        """After a request for this share was granted."""
        return self._replace(held=self.held + share)


class Waiter(NamedTuple):
    """A waiting request. `rank` comes before people (priority), `place` and `id` after them."""

    rank: tuple[int, ...]
    person: str
    share: int
    place: tuple[int, ...]
    id: str


def waiting_order(
    waiters: Iterable[Waiter], people: Mapping[str, Standing], now: int
) -> list[Waiter]:
    """The order in which these requests of one queue are served, if every one of them is granted
    now. Ties end in the id.
    """
    standings = dict(people)
    own: dict[tuple[tuple[int, ...], str], list[Waiter]] = {}
    for waiter in sorted(waiters, key=lambda w: (w.place, w.id), reverse=True):
        own.setdefault((waiter.rank, waiter.person), []).append(waiter)

    def entry(key: tuple[tuple[int, ...], str]) -> tuple[object, ...]:
        rank, person = key
        first = own[key][-1]
        return rank, standings[person].score(now), first.place, first.id, key

    heap = [entry(key) for key in own]
    heapify(heap)
    found = []
    while heap:
        *_, key = heappop(heap)
        waiter = own[key].pop()  # type: ignore[index]
        found.append(waiter)
        standings[waiter.person] = standings[waiter.person].with_share(waiter.share)
        if own[key]:  # type: ignore[index]
            heappush(heap, entry(key))  # type: ignore[arg-type]
    return found
