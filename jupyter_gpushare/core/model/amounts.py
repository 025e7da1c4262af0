"""Amounts as integers: milli-GPU, milli-CPU, MiB.

Unlimited is one very large integer, so that comparing and subtracting need no special case. Adding
to it leaves it unlimited (`is_unlimited`).
"""

from __future__ import annotations

from typing import Final, NamedTuple

__all__ = ["GPU", "MILLI", "NOTHING", "UNLIMITED", "Amounts", "is_unlimited", "quota_of_fraction"]

MILLI: Final = 1000
GPU: Final = MILLI
"""One whole GPU in milli-GPU."""

UNLIMITED: Final = 1 << 60
"""No bound: more milli-GPU, milli-CPU or MiB than any cluster has. Sums of a million of them fit
int64.
"""


def is_unlimited(amount: int) -> bool:
    """Whether an amount means "no bound", also after adding to it or subtracting from it."""
    return amount >= UNLIMITED >> 1


class Amounts(NamedTuple):
    """Amounts of the three managed resources: milli-GPU, milli-CPU, MiB."""

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
    """Milli-GPU that a fraction costs in quota on `devices` GPUs, rounded half up to 0.01 GPU per
    device.

    .333 on two devices costs 660, .125 costs 130, .005 costs 10 (docs/explanation/scheduling.md,
    Amounts).
    """
    return ((milli_gpu + 5) // 10) * 10 * devices
