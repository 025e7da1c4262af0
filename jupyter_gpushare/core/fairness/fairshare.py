"""Divides one resource among a tree of queues: their fair shares.

Rules: docs/explanation/scheduling.md, Fair share. All amounts are integers or fractions of
integers, so that 2.9999999 never becomes 2.

A tier's surplus flows to the next tier before leftovers are handed out, so a lower tier may get a
unit that a higher one missed. Other implementations do the same, and replays must agree.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

from ..model.amounts import MILLI, UNLIMITED, is_unlimited

__all__ = ["Claim", "divide", "divide_among"]

USAGE_SCALE: Final = 1_000_000
"""`Claim.usage` is in millionths of the pool's capacity."""


@dataclass(frozen=True, slots=True)
class Claim:
    """One queue's claim on one resource. `quota`, `limit` and `requested` are integer amounts.

    `weight` is in thousandths (any scale, if equal for all siblings), `usage` in millionths of
    capacity. `requested` is not capped by `limit` here. `quota` and `limit` may be UNLIMITED.
    `parent` is None at the top level.
    """

    name: str
    parent: str | None = None
    rank: int = 100
    created: int = 0
    quota: int = 0
    limit: int = UNLIMITED
    weight: int = MILLI
    requested: int = 0
    usage: int = 0

    @property
    def wanted(self) -> int:
        """The request, capped by the limit."""
        return min(self.limit, self.requested)


def divide(total: int, claims: Iterable[Claim], *, unit: int, k: int = 0) -> dict[str, int]:
    """The fair share of every queue, by name. Children divide their parent's fair share.

    `unit` is what surplus is floored to (1000 milli-GPU; 1 milli-CPU; 1 MiB), `k` the time-based
    factor in thousandths (negative is 0). A queue that is not connected to the top level gets 0.
    Ties go to the older queue, then by name.
    """
    children: defaultdict[str | None, list[Claim]] = defaultdict(list)
    shares: dict[str, int] = {}
    for claim in claims:
        children[claim.parent].append(claim)
        shares[claim.name] = 0
    waiting: list[tuple[int, str | None]] = [(max(0, total), None)]
    while waiting:
        amount, parent = waiting.pop()
        siblings = children.get(parent, ())
        given = divide_among(amount, siblings, unit=unit, k=k)
        for claim, share in zip(siblings, given, strict=True):
            shares[claim.name] = share
            if claim.name in children:
                waiting.append((share, claim.name))
    return shares


def divide_among(total: int, siblings: Sequence[Claim], *, unit: int, k: int = 0) -> list[int]:
    """The fair shares of one set of siblings, in their order. The sum exceeds `total` if quotas are
    oversubscribed.
    """
    wanted = [claim.wanted for claim in siblings]
    shares = [
        min(total if is_unlimited(claim.quota) else claim.quota, want)
        for claim, want in zip(siblings, wanted, strict=True)
    ]
    left = total - sum(shares)
    if left <= 0:
        return shares
    tiers: defaultdict[int, list[int]] = defaultdict(list)
    for index, claim in enumerate(siblings):
        if shares[index] < wanted[index]:
            tiers[claim.rank].append(index)
    division = _Division(siblings, wanted, shares, left, unit, max(0, k))
    remainders = [division.surplus(tiers[rank]) for rank in sorted(tiers, reverse=True)]
    for remainder in remainders:
        division.leftovers(remainder)
    return shares


Remainders = dict[int, tuple[int, int]]
"""Index of a queue -> (numerator, denominator) of the remainder that flooring left."""


@dataclass(slots=True)
class _Division:
    """The surplus of one set of siblings during division; changes `shares` in place."""

    siblings: Sequence[Claim]
    wanted: Sequence[int]
    shares: list[int]
    left: int
    unit: int
    k: int

    def surplus(self, tier: list[int]) -> Remainders:
        """Step 2 for the queues of one rank: rounds, while a queue wanted less than its part.

        Each repeated round has satisfied at least one queue for good, so there are at most as many
        as queues.
        """
        remainders: Remainders = {}
        hungry, again = tier, True
        while again and self.left > 0:
            hungry = [q for q in hungry if self.shares[q] < self.wanted[q]]
            again = self._round(hungry, remainders)
        return remainders

    def _round(self, hungry: list[int], remainders: Remainders) -> bool:
        """Divides what is left once; returns whether a queue wanted less than its part."""
        portions = self._portions(hungry)
        whole = sum(portions)
        if whole == 0:
            return False
        pot, again = self.left, False
        for q, portion in zip(hungry, portions, strict=True):
            if self.siblings[q].weight <= 0:
                continue
            if self.left == 0:
                break
            want, fair = self.wanted[q] - self.shares[q], pot * portion
            if want * whole <= fair:
                give = want
                remainders.pop(q, None)
                again = again or want * whole < fair
            else:
                give = fair // (whole * self.unit) * self.unit
                if fair > give * whole:
                    remainders[q] = (fair - give * whole, whole)
            self.shares[q] += give
            self.left -= give
        return again

    def _portions(self, hungry: list[int]) -> list[int]:
        """max(0, w + k (w - U)) of each queue times a common factor; the weights if nothing was
        used.
        """
        weights = [max(0, self.siblings[q].weight) for q in hungry]
        total_weight = sum(weights)
        if self.k == 0:
            return weights
        grown, drawn = (MILLI + self.k) * USAGE_SCALE, self.k * total_weight
        return [
            max(0, w * grown - drawn * self.siblings[q].usage)
            for q, w in zip(hungry, weights, strict=True)
        ]

    def leftovers(self, remainders: Remainders) -> None:
        """Step 3: one unit each, once, by remainder, age, name. Not capped by demand or limit."""
        if self.left <= 0:
            return
        same_scale = (
            len({whole for _, whole in remainders.values()}) == 1
        )  # nearly always; fractions cost a gcd each

        def urgency(q: int) -> tuple[Fraction | int, int, str]:
            numerator, whole = remainders[q]
            return (
                -(numerator if same_scale else Fraction(numerator, whole)),
                self.siblings[q].created,
                self.siblings[q].name,
            )

        for q in sorted(remainders, key=urgency):
            if self.left <= 0:
                break
            give = min(self.unit, self.left)
            self.shares[q] += give
            self.left -= give
