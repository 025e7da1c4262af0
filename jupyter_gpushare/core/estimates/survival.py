"""How much longer somebody will wait, from how long others did: median and nine in ten, by the
product-limit rule of Kaplan and Meier.

Refuses to know who counts as alike (`likeness` chooses the past) and what time it is: waits are
lengths, in any one unit.

A wait that ended without a grant, or has not ended yet, lasted *at least* so long. It counts among
those who were still waiting up to then, and says nothing of afterwards: leaving it out would make
every estimate too short, as long waits are those that are given up.

Who asks is one more of the same kind, whose wait is not known and may be the longest. So they stand
in every count of those who were still waiting. Where every wait was granted, the result is then
number `ceil(q (n + 1))` of the n in order, which is not below the next wait of the same kind with
probability q, however waits are distributed (split conformal prediction). Nine in ten cannot be
told from fewer than nine.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from operator import neg
from typing import Final

import numpy as np
import numpy.typing as npt

__all__ = ["FEWEST", "SurvivalCurve", "WaitEstimate"]

FEWEST: Final = 5
"""Grants that an estimate rests on, at least: the median of four says little."""
HALF: Final = 0.5
TENTH: Final = 0.1
ROUNDING: Final = 1 + 1e-9
"""A product of fractions that should end at exactly a half or a tenth may end beside it."""


@dataclass(frozen=True, slots=True)
class WaitEstimate:
    """What is still to be waited from now: never negative, and `p90` is not below `median`. None:
    the past does not say.

    `based_on` counts the grants of the past that came after as long a wait as this one has lasted.
    """

    median: float | None
    p90: float | None
    based_on: int


class SurvivalCurve:
    """The part of a past's waits that was not over after each time. Costs a sort; afterwards every
    question is a few bisections.
    """

    def __init__(self, waited: npt.ArrayLike, granted: npt.ArrayLike) -> None:
        """Two columns: how long each lasted, and whether it ended with a grant; False: it lasted at
        least so long.
        """
        lengths, ended = np.asarray(waited, dtype=float), np.asarray(granted, dtype=bool)
        # Of equal lengths those that were granted come first: a wait that was given up at a time
        # was still on at that time.
        order = np.lexsort((~ended, lengths))
        at = np.flatnonzero(ended[order])
        still = len(lengths) - at + 1  # with the one who asks
        self._times: list[float] = lengths[order][at].tolist()
        """When something was granted, ascending; two grants at one time stand twice."""
        self._left: list[float] = [1.0, *np.cumprod(1 - 1 / still).tolist()]
        """The part that still waits: before the first grant, and after each."""

    def expected(self, so_far: float = 0) -> WaitEstimate | None:
        """For one who has waited for so long and has nothing yet: only those count who waited
        longer. None: too few did.
        """
        before = bisect_right(self._times, so_far)
        based_on = len(self._times) - before
        if based_on < FEWEST:
            return None
        return WaitEstimate(
            self._until(HALF, before, so_far), self._until(TENTH, before, so_far), based_on
        )

    def _until(self, part: float, before: int, so_far: float) -> float | None:
        """How long until at most this part of those who waited for so long still waits."""
        wanted = part * self._left[before] * ROUNDING
        place = bisect_left(self._left, -wanted, lo=before, key=neg)
        return self._times[place - 1] - so_far if place < len(self._left) else None
