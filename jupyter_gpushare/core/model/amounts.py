"""Amounts as integers: milli-GPU, milli-CPU, MiB. Knows nothing of queues, nodes or text formats of
files.

Unlimited is one very large integer, so that comparing and subtracting need no special case; adding
to it leaves it unlimited for every purpose (`is_unlimited`).
"""

from __future__ import annotations

from typing import Final, NamedTuple

__all__ = ["GPU", "MILLI", "NOTHING", "UNLIMITED", "Amounts", "is_unlimited", "quota_of_fraction"]

MILLI: Final = 1000
GPU: Final = MILLI
"""One whole GPU in milli-GPU."""

UNLIMITED: Final = 1 << 60
"""No bound. More milli-GPU, milli-CPU or MiB than any cluster has; sums of a million of them still
fit NumPy's int64 check.
"""


def is_unlimited(amount: int) -> bool:
    """Whether an amount stands for "no bound" (also after something was added to or taken from it)."""
    return amount >= UNLIMITED >> 1


class Amounts(NamedTuple):
    """What is asked, held or granted of the three managed resources: milli-GPU, milli-CPU, MiB."""

    gpu: int = 0
    cpu: int = 0
    memory: int = 0

    def plus(self, other: Amounts) -> Amounts:
        """The sum, resource by resource."""
        return Amounts(self.gpu + other.gpu, self.cpu + other.cpu, self.memory + other.memory)

    def minus(self, other: Amounts) -> Amounts:
        """The difference, resource by resource; may be negative."""
        return Amounts(self.gpu - other.gpu, self.cpu - other.cpu, self.memory - other.memory)

    def fits_in(self, other: Amounts) -> bool:
        """Whether every resource is at most the other's."""
        return self.gpu <= other.gpu and self.cpu <= other.cpu and self.memory <= other.memory


NOTHING: Final = Amounts()


def quota_of_fraction(milli_gpu: int, devices: int = 1) -> int:
    """Milli-GPU that a fraction costs in quota on `devices` GPUs: the fraction rounded half away
    from zero to 2 decimals.

    Source: facts of scheduling, section 8.2. `.333` on two devices costs 660, `.125` costs 130,
    `.005` costs 10.
    """
    return ((milli_gpu + 5) // 10) * 10 * devices
