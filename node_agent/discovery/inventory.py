"""Finds the devices that this agent serves, and tests what they can do."""

from __future__ import annotations

from typing import NamedTuple

from jupyter_gpushare.core.model.errors import Unavailable

from ..devices.base.model import TIERS
from ..devices.base.protocols import Devices, DiscoveryRequest
from .vendors import vendors

__all__ = ["TierResult", "find_devices", "missing_all", "self_test"]

ALTERNATIVE = (
    "start with --simulate MODEL:N, a Jupyter server with --GpuShareExtension.simulate=MODEL:N, for"
    " simulated GPUs"
)


class TierResult(NamedTuple):
    """Whether this node has a capability tier; if not, why and what to do."""

    tier: str
    present: bool
    reason: str = ""
    remedy: str = ""


def find_devices(request: DiscoveryRequest) -> Devices:
    """The devices of the first vendor that finds any.

    Raises Unavailable with the reason and the remedy when there are none.
    """
    problems = []
    for vendor in vendors():
        try:
            found = vendor.find(request)
        except Unavailable as error:
            problems.append(error.message)
        else:
            if found is not None:
                return found
    raise Unavailable("; or ".join([*problems, ALTERNATIVE]))


def self_test(devices: Devices) -> list[TierResult]:
    """The result for every tier, then for those that some devices lack. Blocks for seconds."""
    devices.probe()
    tiers, problems = devices.capabilities()
    results = []
    for tier in (*TIERS, *(name for name in problems if name not in TIERS)):
        if tier in tiers:
            results.append(TierResult(tier, True))
        else:
            problem = problems.get(tier, "not found")
            results.append(TierResult(tier, False, *devices.advice(tier, problem)))
    return results


def missing_all(problem: str) -> list[TierResult]:
    """The result on a machine without devices: every tier is missing for this reason."""
    first, *others = TIERS
    reason, _, remedy = problem.partition("; ")
    consequence = "there is no GPU to share here; see observe"
    return [
        TierResult(first, False, reason, remedy),
        *(TierResult(tier, False, consequence) for tier in others),
    ]
