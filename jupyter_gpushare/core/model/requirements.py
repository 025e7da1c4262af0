"""What one pod needs of a node and what it costs in quota.

Pods with the same request share one `PodRequirements` object (`RequirementsCache.of`), so that
thousands of them are compared by identity.
"""

from __future__ import annotations

from typing import Final
from weakref import WeakValueDictionary

from .amounts import GPU, MILLI, Amounts, quota_of_fraction
from .errors import InvalidInput
from .gpu_request import check_amounts
from .model import Affinity, Pod

__all__ = ["UNKNOWN_MEMORY", "PodRequirements", "RequirementsCache", "mig_slices"]

UNKNOWN_MEMORY: Final = MILLI
"""Capacity of a device of unknown memory, in thousandths of it, so that fractions add up to one
exactly.
"""


def mig_slices(profile: str) -> int:
    """GPUs that a MIG instance counts in quota: the compute slices in its name (`3g.40gb` is 3)."""
    digits = profile.partition("g.")[0]
    if not digits.isdigit() or int(digits) < 1:
        raise InvalidInput(
            f"MIG profile {profile!r} does not start with its number of slices, such as 3g.40gb",
            field="mig",
        )
    return int(digits)


class PodRequirements:
    """Exactly one of `whole` devices, a `share` (milli) of each of `devices`, `memory` (MiB) on
    each of `devices`, or `mig` instances; none of them for a pod without GPUs.
    """

    __slots__ = (
        "affinity",
        "anti_affinity",
        "cpu",
        "devices",
        "gpu",
        "is_fraction",
        "is_plain",
        "labels",
        "memory",
        "mig",
        "node_names",
        "ram",
        "selector",
        "share",
        "stated",
        "tolerations",
        "whole",
        "__weakref__",
    )

    def __init__(self, pod: Pod) -> None:
        asks_memory = pod.gpu_memory is not None
        is_whole = not asks_memory and pod.gpu > 0 and pod.gpu % GPU == 0
        self.whole = pod.gpu // GPU * pod.gpu_devices if is_whole else 0
        self.share = 0 if asks_memory or is_whole else pod.gpu
        self.memory = pod.gpu_memory or 0
        self.devices = pod.gpu_devices if self.share or asks_memory else 0
        self.mig = tuple(sorted((profile, count) for profile, count in pod.mig if count))
        self.cpu = pod.cpu
        self.ram = pod.memory
        self.is_fraction = self.devices > 0
        self.gpu = bool(self.whole or self.devices or self.mig)
        self.selector = tuple(sorted(pod.node_selector.items()))
        self.node_names = frozenset(pod.node_affinity)
        self.tolerations = pod.tolerations
        self.labels = tuple(sorted(pod.labels.items()))
        self.affinity: Affinity | None = pod.affinity
        self.anti_affinity: Affinity | None = pod.anti_affinity
        slices = sum(mig_slices(profile) * count for profile, count in self.mig) * GPU
        self.stated = Amounts(
            self.whole * GPU + quota_of_fraction(self.share, self.devices) + slices,
            self.cpu,
            self.ram,
        )
        """Its cost in quota as far as that does not depend on the node: GPU memory counts nothing.
        """
        self.is_plain = not (
            self.selector or self.node_names or self.affinity or self.anti_affinity
        )

    def portion(self, capacity: int) -> int:
        """MiB that it takes on each of its devices, for devices of this size.

        A fraction is truncated to MiB, but never to 0 (docs/explanation/scheduling.md, Amounts).
        """
        if self.whole:
            return capacity
        return self.memory or max(1, self.share * capacity // MILLI)

    def charge(self, capacity: int) -> Amounts:
        """Its cost in quota on a node with devices of this size (docs/explanation/scheduling.md,
        Amounts).
        """
        if self.memory:
            hundredths = -(-100 * self.memory // max(1, capacity))
            return Amounts(hundredths * 10 * self.devices, self.cpu, self.ram)
        return self.stated

    @property
    def order(self) -> tuple[object, ...]:
        """A total order of requests: two that differ in any respect never tie."""
        return (
            self.whole,
            self.share,
            self.memory,
            self.devices,
            self.mig,
            self.cpu,
            self.ram,
            self.selector,
            sorted(self.node_names),
            self.labels,
            self.tolerations,
            repr(self.affinity),
            repr(self.anti_affinity),
        )

    def estimate(self, smallest: int) -> Amounts:
        """Its cost in quota while pending: GPU memory counts against the smallest device of the
        pool.
        """
        if self.memory:
            return Amounts(
                -(-MILLI * self.memory // max(1, smallest)) * self.devices, self.cpu, self.ram
            )
        return self.stated


class RequirementsCache:
    """One `PodRequirements` per distinct request, as long as a pod has it."""

    __slots__ = ("_known",)

    def __init__(self) -> None:
        self._known: WeakValueDictionary[tuple[object, ...], PodRequirements] = (
            WeakValueDictionary()
        )

    def __len__(self) -> int:
        return len(self._known)

    def of(self, pod: Pod) -> PodRequirements:
        """The shared requirements of this pod. Raises `InvalidInput`, naming the field, for an
        invalid request.
        """
        key = (
            pod.gpu,
            pod.gpu_memory,
            pod.gpu_devices,
            pod.mig,
            pod.cpu,
            pod.memory,
            tuple(sorted(pod.node_selector.items())),
            pod.node_affinity,
            pod.tolerations,
            tuple(sorted(pod.labels.items())),
            pod.affinity,
            pod.anti_affinity,
        )
        known = self._known.get(key)
        if known is None:
            _check(pod)
            known = self._known[key] = PodRequirements(pod)
        return known


def _check(pod: Pod) -> None:
    check_amounts(pod.gpu, pod.gpu_memory)
    for field in ("cpu", "memory"):
        if getattr(pod, field) < 0:
            raise InvalidInput(f"pod {pod.name} has a negative {field}", field=field)
    if pod.mig and (pod.gpu or pod.gpu_memory is not None):
        raise InvalidInput(f"pod {pod.name}: mig excludes gpu and gpu_memory", field="mig")
    if pod.gpu_devices < 1:
        raise InvalidInput(
            f"pod {pod.name} requests {pod.gpu_devices} devices", field="gpu_devices"
        )
    if any(count < 0 for _, count in pod.mig):
        raise InvalidInput(f"pod {pod.name} has a negative number of MIG instances", field="mig")
    for profile, _ in pod.mig:
        mig_slices(profile)
