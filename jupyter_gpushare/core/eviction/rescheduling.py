"""Places victims again: each stays on its GPU, moves, or remains evicted.

A victim of a simulation often still fits. Staying is preferred, because a move restarts the pod.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..allocation.gang import Allocation
from ..cluster.nodes import NodeState
from ..cluster.pools import PoolState
from ..cluster.quota import refusal
from ..cluster.state import State
from ..cluster.work import Member, Work
from ..model.model import SubGroup
from .victim_candidates import EvictionUnit

__all__ = ["VictimRescheduler", "TentativeChanges", "is_evicted", "is_moved", "is_affected"]


class TentativeChanges:
    """Changes that may be undone, including the pool's versions."""

    __slots__ = ("freed", "mark", "pool", "state", "version")

    def __init__(self, state: State, pool: PoolState) -> None:
        self.state, self.pool = state, pool
        self.mark, self.version, self.freed = state.undo_log.mark(), pool.version, pool.freed

    def undo(self) -> None:
        self.state.undo_log.undo_to(self.mark)
        self.pool.version, self.pool.freed = self.version, self.freed


def is_evicted(unit: EvictionUnit) -> bool:
    """Whether one of its pods has lost its place."""
    return any(m.status == "releasing" for m in unit.members)


def is_moved(unit: EvictionUnit) -> bool:
    """Whether one of its pods was promised another place."""
    return any(m.status == "pipelined" for m in unit.members)


def is_affected(unit: EvictionUnit) -> bool:
    """Whether any of its pods was evicted or moved."""
    return any(m.status != "running" for m in unit.members)


class VictimRescheduler:
    """Evicts units of victims in one pool and places them again."""

    def __init__(self, state: State, pool: PoolState) -> None:
        self.state, self.pool = state, pool

    def evict(self, unit: EvictionUnit) -> None:
        """Evicts all pods of the unit."""
        for member in unit.members:
            self.state.put(member, "releasing", member.node, member.devices)

    def withdraw(self, unit: EvictionUnit) -> None:
        """Evicts all pods of the unit that were promised another place or stayed.

        The unit makes way as a whole; otherwise a gang could lose some of its pods and keep others.
        """
        for member in unit.members:
            if member.status == "pipelined":
                self.state.put(member, "releasing", member.old, member.old_devices)
            elif member.status == "running":
                self.state.put(member, "releasing", member.node, member.devices)

    def reschedule(self, unit: EvictionUnit) -> bool:
        """Finds places for all of its evicted pods, or for none. A pod that gets its own node stays
        there.
        """
        if self._is_refused(unit):
            return False
        tentative = TentativeChanges(self.state, self.pool)
        evicted = [m for m in unit.members if m.status == "releasing"]
        allocation = Allocation(self.state, self.pool, unit.work, pipeline_only=True)
        if not allocation.place_all(evicted):
            return False
        if _is_below_minimum(unit):
            tentative.undo()
            return False
        return True

    def evict_extras(self, units: Sequence[EvictionUnit]) -> list[EvictionUnit]:
        """Evicts pods above the minimum of workloads whose core remains evicted; returns these
        units.
        """
        found = []
        for unit in units:
            if unit.extras and is_evicted(unit):
                found += [extra for extra in unit.extras if not is_evicted(extra)]
        for extra in found:
            self.withdraw(extra)
        return found

    def restore(self, used: Sequence[EvictionUnit]) -> None:
        """Lets moved pods whose old place is free stay there, and places evicted ones that
        fit now.
        """
        cores = [unit for unit in reversed(used) if unit.is_core]
        extras = [unit for unit in reversed(used) if not unit.is_core]
        by_work: dict[Work, list[EvictionUnit]] = {}
        for unit in used:
            by_work.setdefault(unit.work, []).append(unit)
        for unit in (*cores, *extras):  # pods above a minimum stay only if the minimum does
            self._restore_moved(by_work[unit.work] if _shares_domain(unit) else [unit])
            is_evicted_whole = all(m.status == "releasing" for m in unit.members)
            if is_evicted_whole and not self._is_refused(unit) and not self._restore_all(unit):
                self.reschedule(unit)

    def _restore_moved(self, units: Sequence[EvictionUnit]) -> None:
        """Restores each moved pod whose old place is free; pods that share a domain all or none."""
        tentative = TentativeChanges(self.state, self.pool)
        for member in (member for unit in units for member in unit.members):
            self._stay(member)
        if _shares_domain(units[0]) and any(map(is_moved, units)):
            tentative.undo()

    def keep_in_place(
        self, used: Sequence[EvictionUnit], members_to_place: Sequence[Member]
    ) -> None:
        """Lets moved pods keep their GPUs where the pending pods can take others on the same
        node.
        """
        by_node: dict[NodeState | None, list[Member]] = {}
        for member in members_to_place:
            by_node.setdefault(member.node, []).append(member)
        for unit in used:
            for member in unit.members if not _shares_domain(unit) else ():
                if member.status == "pipelined" and member.old is not None:
                    self._swap_devices(member, by_node.get(member.old, []))

    def _swap_devices(self, member: Member, members_to_place: list[Member]) -> None:
        tentative, node = TentativeChanges(self.state, self.pool), member.old
        assert node is not None
        for other in members_to_place:
            self.state.put(other, "pending")
        if self._stay(member) and all(
            self._place_on_node(other, node) for other in members_to_place
        ):
            return
        tentative.undo()

    def _stay(self, member: Member) -> bool:
        """Lets a moved pod stay if its old place is free, apart from what it was promised there
        itself; returns whether it stays.
        """
        if member.status != "pipelined" or member.old is None:
            return False
        tentative = TentativeChanges(self.state, self.pool)
        self.state.put(member, "releasing", member.old, member.old_devices)
        if member.node is not None and member.node.fits_on_devices(member.need, member.devices):
            self._restore_member(member)
            return True
        tentative.undo()
        return False

    def _place_on_node(self, member: Member, node: NodeState) -> bool:
        """Promises the pod a place on this node."""
        chosen = node.choose(member.need, self.pool.config.gpu_device or self.pool.config.gpu)
        if chosen is None or not node.has_spare(member.need):
            return False
        self.state.put(member, "pipelined", node, chosen[0], member.need.charge(node.capacity))
        return True

    def _is_refused(self, unit: EvictionUnit) -> bool:
        """Whether a limit or quota forbids it to run, such as the one for which it was evicted."""
        work = unit.work
        leaf = self.pool.queue(work.project)
        return refusal(leaf, unit.charge, work) is not None

    def _restore_member(self, member: Member) -> None:
        node, devices = (
            (member.old, member.old_devices)
            if member.old is not None
            else (member.node, member.devices)
        )
        assert node is not None
        self.state.put(member, "running", node, devices, member.need.charge(node.capacity))

    def _restore_all(self, unit: EvictionUnit) -> bool:
        if _shares_domain(unit) and any(
            m.status == "pipelined" for m in unit.work.members.values()
        ):
            return False  # the rest of the workload goes to another domain
        tentative = TentativeChanges(self.state, self.pool)
        for member in unit.members:
            if member.node is None or not member.node.fits_on_devices(member.need, member.devices):
                tentative.undo()
                return False
            self._restore_member(member)
        if _is_below_minimum(unit):
            tentative.undo()
            return False
        return True


def _is_below_minimum(unit: EvictionUnit) -> bool:
    """Whether a pod above the minimum was placed without the minimum."""
    return not unit.is_core and any(s.active < s.minimum for s in unit.work.podsets)


def _shares_domain(unit: EvictionUnit) -> bool:
    """Whether its pods must share a topology domain, so that none of them may stay or move
    alone.
    """
    workload = unit.work.workload
    return workload.topology is not None or any(_has_topology(group) for group in workload.groups)


def _has_topology(group: SubGroup) -> bool:
    return group.topology is not None or any(_has_topology(inner) for inner in group.groups)
