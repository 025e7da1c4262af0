"""What a node could hold if some of its pods left: a cheap check before a simulation."""

from __future__ import annotations

from ..model.requirements import PodRequirements
from .nodes import HELD, PROMISED, NodeState

__all__ = ["Departures"]


class Departures:
    """The sums of what the leaving pods of one node use. The rest of the node is read when asked,
    so it may change in between.
    """

    __slots__ = ("cpu", "gpu", "memory", "node", "slots")

    def __init__(self, node: NodeState) -> None:
        self.node = node
        self.slots = self.cpu = self.memory = 0
        self.gpu: dict[int, int] = {}
        """MiB per device, or 1 for a MIG instance."""

    def add(self, need: PodRequirements, devices: tuple[int, ...]) -> None:
        """Counts one more pod, held or promised on these devices, as gone."""
        self.slots += 1
        self.cpu += need.cpu
        self.memory += need.ram
        if devices:
            portion = 1 if need.mig else need.portion(self.node.capacity)
            for device in devices:
                self.gpu[device] = self.gpu.get(device, 0) + portion

    def would_fit(self, need: PodRequirements) -> bool:
        """Whether the node could promise the pod a place then. Ignores labels and taints."""
        if need.whole and self.node.room + len(self.gpu) < need.whole:
            return False
        if not self._has_spare(need):
            return False
        if need.mig:
            return self._has_instances(need)
        return not need.gpu or self._has_devices(need)

    def _has_spare(self, need: PodRequirements) -> bool:
        state, node = self.node, self.node.node
        return (
            state.slots[HELD] + state.slots[PROMISED] - self.slots < node.max_pods
            and node.cpu - state.cpu[HELD] - state.cpu[PROMISED] + self.cpu >= need.cpu
            and node.memory - state.memory[HELD] - state.memory[PROMISED] + self.memory >= need.ram
        )

    def _has_instances(self, need: PodRequirements) -> bool:
        held, _, promised = self.node.gpu
        free = [
            profile
            for device, profile in enumerate(self.node.profiles, start=self.node.node.gpus)
            if held[device] + promised[device] - self.gpu.get(device, 0) <= 0
        ]
        return all(free.count(profile) >= count for profile, count in need.mig)

    def _has_devices(self, need: PodRequirements) -> bool:
        held, _, promised = self.node.gpu
        size, capacity = need.portion(self.node.capacity), self.node.capacity
        fitting = 0
        for device in self.node.usable:
            taken = held[device] + promised[device] - self.gpu.get(device, 0)
            fitting += capacity - taken >= size
        return fitting >= (need.whole or need.devices)
