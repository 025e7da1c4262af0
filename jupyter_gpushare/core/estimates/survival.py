"""Expected remaining wait from earlier waits: median and 90th percentile by the Kaplan-Meier
product-limit estimator.

Waits are lengths in any one unit. `wait_history` chooses which earlier waits are similar.

A wait that ended without a grant, or still lasts, is censored: it lasted *at least* that long. It
counts among the waits still running up to then. Leaving it out would make estimates too short,
since long waits are those that are cancelled.

The current request is one more of the same kind, and may have the longest wait, so it is included
in every count of waits still running. If every wait was granted, the result is then number `ceil(q
(n + 1))` of the n in order. The next wait of the same kind does not exceed it with probability q,
for any distribution (split conformal prediction). A 90th percentile needs at least nine waits.
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
"""Minimum number of grants for an estimate."""
HALF: Final = 0.5
TENTH: Final = 0.1
ROUNDING: Final = 1 + 1e-9
"""Tolerance for products of fractions that should be exactly a half or a tenth."""


@dataclass(frozen=True, slots=True)
class WaitEstimate:
    """The remaining wait from now; never negative, `p90` not below `median`. None: not enough data.

    `based_on` counts earlier grants after at least as long a wait as this one so far.
    """

    median: float | None
    p90: float | None
    based_on: int


class SurvivalCurve:
    """The part of earlier waits that still lasted after each time. Costs a sort; queries are
    bisections.
    """

    def __init__(self, waited: npt.ArrayLike, granted: npt.ArrayLike) -> None:
        """Two columns: the length of each wait, and whether it ended with a grant (False:
        censored).
        """
        lengths, ended = np.asarray(waited, dtype=float), np.asarray(granted, dtype=bool)
        # Of equal lengths, granted waits come first: a wait cancelled at a time still lasted at
        # that time.
        order = np.lexsort((~ended, lengths))
        at = np.flatnonzero(ended[order])
        still = len(lengths) - at + 1  # including the current request
        self._times: list[float] = lengths[order][at].tolist()
        """Grant times in ascending order, repeated for equal ones."""
        self._left: list[float] = [1.0, *np.cumprod(1 - 1 / still).tolist()]
        """The part that still waits: before the first grant, and after each."""

    def expected(self, so_far: float = 0) -> WaitEstimate | None:
        """The estimate for a request that has waited `so_far`; only longer waits count. None: too
        few.
        """
        before = bisect_right(self._times, so_far)
        based_on = len(self._times) - before
        if based_on < FEWEST:
            return None
        return WaitEstimate(
            self._until(HALF, before, so_far), self._until(TENTH, before, so_far), based_on
        )

    def _until(self, part: float, before: int, so_far: float) -> float | None:
        """The time until at most this part of the waits that lasted `so_far` still lasts."""
        wanted = part * self._left[before] * ROUNDING
        place = bisect_left(self._left, -wanted, lo=before, key=neg)
        return self._times[place - 1] - so_far if place < len(self._left) else None
