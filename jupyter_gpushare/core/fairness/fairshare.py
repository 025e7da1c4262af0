"""Who is entitled to how much: divides one resource among a tree of queues. Knows nothing of pods,
nodes or text formats.

Source: scheduling rules, section 2. Everything is an integer or a fraction of integers, so that
2.9999999 never becomes 2.

Three phases among siblings: quota first (nobody is scaled down when quotas are over-subscribed),
then the surplus in tiers of rank by over-quota weight, floored to whole units, then the units that
the floors left over, one per queue by the largest remainder. A tier's surplus flows to the next
tier *before* leftovers are handed out, so a lower tier may get a unit that a higher one missed
(vector V6): the rules say so, and a replay against other implementations must agree.
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
    """What one queue may claim of one resource. `quota`, `limit` and `requested` are in the
    resource's integer amounts.

    `weight` is in thousandths (any scale works as long as all siblings use it), `usage` in
    millionths of capacity. `requested` is not capped by `limit`; dividing does that. `quota` and
    `limit` may be UNLIMITED. `parent` is None at the top level.
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
        """Requested, as far as the limit allows."""
        return min(self.limit, self.requested)


def divide(total: int, claims: Iterable[Claim], *, unit: int, k: int = 0) -> dict[str, int]:
    """The fair share of every queue, by name, in the amounts that came in. Children divide what
    their parent was given.

    `unit` is what surplus is floored to (1000 milli-GPU; 1 milli-CPU; 1 MiB), `k` the time-based
    factor in thousandths (negative is 0). A queue without a way up to the top level (parent
    missing, or a cycle) gets 0. Ties go to the older queue, then by name.
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
    """The fair shares of one set of siblings, in their order. The sum may exceed `total` when
    quotas are over-subscribed.
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
"""Index of a queue -> (numerator, denominator) of what its floor took from it."""


@dataclass(slots=True)
class _Division:
    """The surplus of one set of siblings while it is handed out; changes `shares` in place."""

    siblings: Sequence[Claim]
    wanted: Sequence[int]
    shares: list[int]
    left: int
    unit: int
    k: int

    def surplus(self, tier: list[int]) -> Remainders:
        """Phase 2 for the queues of one rank, round after round while someone was satisfied and set
        part of its portion free.

        A round that asks for another one has satisfied at least one queue for good, so there are at
        most as many as queues.
        """
        remainders: Remainders = {}
        hungry, again = tier, True
        while again and self.left > 0:
            hungry = [q for q in hungry if self.shares[q] < self.wanted[q]]
            again = self._round(hungry, remainders)
        return remainders

    def _round(self, hungry: list[int], remainders: Remainders) -> bool:
        """Divides what is left once; whether a queue wanted less than its portion, so that another
        round is worth it.
        """
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
        """max(0, nW + k (nW - U)) of each queue, times one common factor; proportional to the
        weights when nothing was used.
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
        """Phase 3: one unit each, exactly once, by remainder, age, name. Not capped by want or
        limit (vector V11).
        """
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
