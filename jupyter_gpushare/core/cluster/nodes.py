"""What a node has free, device by device, and which devices a pod would get there.

Three kinds of use are distinguished: *held* (running or bound), *leaving* (evicted, not released
yet) and *promised* (pipelined). A pod starts now on `capacity - held - leaving`, and never on what
is promised; it can be promised `capacity - held - promised`.
"""

from __future__ import annotations

from typing import Final

from ..model.amounts import GPU, Amounts
from ..model.model import Node, Strategy
from ..model.requirements import UNKNOWN_MEMORY, PodRequirements, mig_slices

__all__ = ["HELD", "LEAVING", "NodeState", "PROMISED"]

HELD: Final = 0
LEAVING: Final = 1
PROMISED: Final = 2
VERDICTS: Final = 512
"""Requests whose admission a node remembers. Requests come and go, nodes stay."""


class NodeState:
    """One node and its devices: whole GPUs first, then MIG instances by profile. `Spot.devices`
    holds the indexes.

    `idle` counts unused GPUs, `room` those that are unused or will be; `shared_now` and
    `shared_later` are the most MiB that one shared GPU can give, `shared_free` what all shared GPUs
    can give now. `change` updates them.
    """

    __slots__ = (
        "capacity",
        "cpu",
        "gpu",
        "idle",
        "memory",
        "name",
        "node",
        "pods",
        "pool",
        "profiles",
        "replans",
        "room",
        "shared_free",
        "shared_later",
        "shared_now",
        "slots",
        "static",
        "usable",
    )

    def __init__(self, node: Node, pool: str) -> None:
        self.gpu: tuple[list[int], list[int], list[int]] = ([], [], [])
        self.cpu = [0, 0, 0]
        self.memory = [0, 0, 0]
        self.slots = [0, 0, 0]
        self.pods: dict[object, PodRequirements] = {}
        self.replans: dict[tuple[int, int], object] = {}
        """Results of `allocation.replanning`, by MiB and number of devices; valid until a change.
        """
        self.load(node, pool)

    def load(self, node: Node, pool: str) -> None:
        """Replaces the description of the node; the pods' use of it stays."""
        self.node, self.name, self.pool = node, node.name, pool
        self.capacity = node.gpu_memory or UNKNOWN_MEMORY
        self.usable = tuple(device for device in range(node.gpus) if device not in node.unhealthy)
        self.profiles = tuple(
            profile for profile in sorted(node.mig) for _ in range(node.mig[profile])
        )
        self.static: dict[PodRequirements, bool] = {}
        wanted = node.gpus + len(self.profiles)
        for uses in self.gpu:
            uses.extend([0] * (wanted - len(uses)))
            while len(uses) > wanted and not uses[-1]:
                uses.pop()
        for uses in self.gpu:  # a device that is still in use stays in all three lists
            uses.extend([0] * (max(map(len, self.gpu)) - len(uses)))
        self.count()

    @property
    def total(self) -> Amounts:
        """The capacity that the node adds to its pool; MIG instances count their slices."""
        slices = sum(map(mig_slices, self.profiles))
        return Amounts((len(self.usable) + slices) * GPU, self.node.cpu, self.node.memory)

    def change(self, need: PodRequirements, devices: tuple[int, ...], use: int, sign: int) -> None:
        """Adds (+1) or removes (-1) one pod's use of these devices and of CPU, memory and a pod
        slot.
        """
        self.cpu[use] += sign * need.cpu
        self.memory[use] += sign * need.ram
        self.slots[use] += sign
        if devices:
            uses = self.gpu[use]
            portion = sign * (1 if need.mig else need.portion(self.capacity))
            self.extend_to(max(devices))
            for device in devices:
                uses[device] += portion
            self.count()

    def extend_to(self, device: int) -> None:
        """Extends the lists to a device that is named but not known (any more)."""
        for uses in self.gpu:
            if len(uses) <= device:
                uses.extend([0] * (device + 1 - len(uses)))

    def count(self) -> None:
        """Recounts idle and free devices; takes microseconds and cannot drift."""
        idle = room = now = later = shared = 0
        capacity = self.capacity
        held, leaving, promised = self.gpu
        for device in self.usable:
            h, p = held[device], promised[device]
            if h == 0 and p == 0:
                room += 1
                idle += leaving[device] == 0
            else:
                free = capacity - h - p
                if free > later:
                    later = free
                free = min(free, capacity - h - leaving[device])
                if free > 0:
                    shared += free
                    if free > now:
                        now = free
        self.idle, self.room, self.shared_now, self.shared_later = idle, room, now, later
        self.shared_free = shared
        self.replans.clear()

    @property
    def free_now(self) -> int:
        """MiB that are free now on all devices together."""
        return self.idle * self.capacity + self.shared_free

    def admits(self, need: PodRequirements) -> bool:
        """Whether labels, names and taints admit such a pod, whatever is free."""
        if need.is_plain and not self.node.taints:
            return True
        verdict = self.static.get(need)
        if verdict is None:
            if len(self.static) >= VERDICTS:
                self.static.clear()
            verdict = self.static[need] = self._matches(need)
        return verdict

    def _matches(self, need: PodRequirements) -> bool:
        return (not need.node_names or self.name in need.node_names) and self.matches_labels(need)

    def matches_labels(self, need: PodRequirements) -> bool:
        """Whether the labels match the pod's selector and it tolerates the taints."""
        labels = self.node.labels
        if any(labels.get(key) != value for key, value in need.selector):
            return False
        return all(_tolerated(taint, need.tolerations) for taint in self.node.taints)

    def has_spare(self, need: PodRequirements) -> bool:
        """Whether CPU, memory and a pod slot are available, now or after leaving pods are gone."""
        node = self.node
        return (
            self.slots[HELD] + self.slots[PROMISED] < node.max_pods
            and node.cpu - self.cpu[HELD] - self.cpu[PROMISED] >= need.cpu
            and node.memory - self.memory[HELD] - self.memory[PROMISED] >= need.ram
        )

    def has_spare_now(self, need: PodRequirements) -> bool:
        """Whether CPU, memory and a pod slot are free now, beside what is promised."""
        node = self.node
        return (
            self.slots[HELD] + max(self.slots[LEAVING], self.slots[PROMISED]) < node.max_pods
            and node.cpu - self.cpu[HELD] - max(self.cpu[LEAVING], self.cpu[PROMISED]) >= need.cpu
            and node.memory - self.memory[HELD] - max(self.memory[LEAVING], self.memory[PROMISED])
            >= need.ram
        )

    def fits(self, need: PodRequirements) -> int:
        """0: no room; 1: room after leaving pods are gone; 2: room now. Ignores labels and
        taints.
        """
        if not self.has_spare(need):
            return 0
        if not need.gpu:
            return 2 if self.has_spare_now(need) else 1
        if need.whole:
            if self.room < need.whole:
                return 0
            return 2 if self.idle >= need.whole and self.has_spare_now(need) else 1
        found = self.choose(need, "binpack")
        if found is None:
            return 0
        return 2 if found[1] and self.has_spare_now(need) else 1

    def is_shareable(self, need: PodRequirements) -> bool:
        """Whether a GPU that is already shared can take this fraction."""
        return need.is_fraction and self.shared_later >= need.portion(self.capacity)

    def choose(
        self, need: PodRequirements, strategy: Strategy
    ) -> tuple[tuple[int, ...], bool] | None:
        """The devices that the pod would get, and whether they are free now. None: there are not
        enough.

        Ties go to the lower index. Devices that are free now precede those being released: with the
        packing score alone, a fraction would wait for a fuller device while another could start it
        now.
        """
        if not need.gpu:
            return (), True
        if need.mig:
            return self._choose_instances(need)
        held, leaving, promised = self.gpu
        if need.whole:
            free = [d for d in self.usable if held[d] == 0 and promised[d] == 0]
            free.sort(key=lambda d: leaving[d] > 0)
            chosen = free[: need.whole]
            wanted = need.whole
        else:
            wanted = need.devices
            chosen = self._choose_shares(need, strategy)[:wanted]
        if len(chosen) < wanted:
            return None
        size = need.portion(self.capacity)
        now = all(self.capacity - held[d] - max(leaving[d], promised[d]) >= size for d in chosen)
        return tuple(sorted(chosen)), now

    def _choose_shares(self, need: PodRequirements, strategy: Strategy) -> list[int]:
        """Devices with room for the fraction, best first: fullest (bin-pack) or emptiest
        (spread).
        """
        held, leaving, promised = self.gpu
        size, capacity = need.portion(self.capacity), self.capacity
        ranked = []
        for d in self.usable:
            later = capacity - held[d] - promised[d]
            if later >= size:
                # a device that all its pods are leaving counts as whole
                used = held[d] + promised[d]
                waits = capacity - held[d] - max(leaving[d], promised[d]) < size
                ranked.append((waits, -used if strategy == "binpack" else used, d))
        ranked.sort()
        return [device for _, _, device in ranked]

    def _choose_instances(self, need: PodRequirements) -> tuple[tuple[int, ...], bool] | None:
        held, leaving, promised = self.gpu
        chosen: list[int] = []
        for profile, count in need.mig:
            free = [
                d
                for d, p in enumerate(self.profiles, start=self.node.gpus)
                if p == profile and held[d] == 0 and promised[d] == 0
            ]
            free.sort(key=lambda d: leaving[d] > 0)
            if len(free) < count:
                return None
            chosen += free[:count]
        return tuple(sorted(chosen)), all(leaving[d] == 0 for d in chosen)

    def fits_on_devices(self, need: PodRequirements, devices: tuple[int, ...]) -> bool:
        """Whether these devices could hold the pod after leaving pods are gone, and the node its
        CPU and memory.
        """
        held, _, promised = self.gpu
        if not self.has_spare(need):
            return False
        if need.mig:
            return all(held[d] == 0 and promised[d] == 0 for d in devices)
        size = need.portion(self.capacity)
        return all(
            self.capacity - held[d] - promised[d] >= size and d not in self.node.unhealthy
            for d in devices
        )

    def fits_now_on_devices(self, need: PodRequirements, devices: tuple[int, ...]) -> bool:
        """Whether the pod could start now on these devices."""
        held, leaving, promised = self.gpu
        size = need.portion(self.capacity) if devices else 0
        return self.has_spare_now(need) and all(
            self.capacity - held[d] - max(leaving[d], promised[d]) >= size for d in devices
        )


def _tolerated(taint: tuple[str, str, str], tolerations: tuple[tuple[str, str], ...]) -> bool:
    key, value, effect = taint
    if effect == "PreferNoSchedule":
        return True
    return any(k in (key, "*") and v in (value, "", "*") for k, v in tolerations)
