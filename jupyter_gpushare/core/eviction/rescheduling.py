"""Where victims go: evicted, put back, moved, or left where they are. Decides who keeps a place,
not who loses one.

A victim of a simulation often fits somewhere after all. Whoever can stay on his own GPU stays; a
move is a restart, and the second best.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..allocation.gang import Allocation
from ..cluster.nodes import NodeState
from ..cluster.pools import PoolState
from ..cluster.quota import refusal
from ..cluster.state import State
from ..cluster.work import Member
from ..model.model import SubGroup
from .victim_candidates import EvictionUnit

__all__ = ["VictimRescheduler", "TentativeChanges", "is_lost", "is_moved", "is_touched"]


class TentativeChanges:
    """Changes that may have to be undone, versions included."""

    __slots__ = ("freed", "mark", "pool", "state", "version")

    def __init__(self, state: State, pool: PoolState) -> None:
        self.state, self.pool = state, pool
        self.mark, self.version, self.freed = state.journal.mark(), pool.version, pool.freed

    def undo(self) -> None:
        self.state.journal.undo_to(self.mark)
        self.pool.version, self.pool.freed = self.version, self.freed


def is_lost(unit: EvictionUnit) -> bool:
    """Whether one of its pods has no place any more."""
    return any(m.status == "releasing" for m in unit.members)


def is_moved(unit: EvictionUnit) -> bool:
    """Whether one of its pods was promised another place."""
    return any(m.status == "pipelined" for m in unit.members)


def is_touched(unit: EvictionUnit) -> bool:
    """Whether anything happened to it."""
    return any(m.status != "running" for m in unit.members)


class VictimRescheduler:
    """Evicts and seats units of victims in one pool."""

    def __init__(self, state: State, pool: PoolState) -> None:
        self.state, self.pool = state, pool

    def evict(self, unit: EvictionUnit) -> None:
        """Takes its places away."""
        for member in unit.members:
            self.state.put(member, "releasing", member.node, member.devices)

    def lift(self, unit: EvictionUnit) -> None:
        """Takes back the promise of another place, and the places of the unit's pods that stayed:
        it makes way as a whole, or a gang would lose some of its pods and keep the others.
        """
        for member in unit.members:
            if member.status == "pipelined":
                self.state.put(member, "releasing", member.old, member.old_devices)
            elif member.status == "running":
                self.state.put(member, "releasing", member.node, member.devices)

    def seat(self, unit: EvictionUnit) -> bool:
        """Finds places for all of its evicted pods, or for none; a pod that is given its own node
        back stays there.
        """
        if self._is_refused(unit):
            return False
        evicted = [m for m in unit.members if m.status == "releasing"]
        return Allocation(self.state, self.pool, unit.work, promise=True).seat_all(evicted)

    def send_back(self, used: Sequence[EvictionUnit]) -> None:
        """Moved pods whose old place is still free stay there, and evicted ones that now fit
        somewhere keep running or move.
        """
        for unit in reversed(used):
            self._bring_back(
                [other for other in used if other.work is unit.work]
                if _is_kept_together(unit)
                else [unit]
            )
            if (
                all(m.status == "releasing" for m in unit.members)
                and not self._is_refused(unit)
                and not self._stay_all(unit)
            ):
                self.seat(unit)

    def _bring_back(self, units: Sequence[EvictionUnit]) -> None:
        """Each moved pod whose old place is still free; those that must be in one domain, all or
        none.
        """
        trial = TentativeChanges(self.state, self.pool)
        for member in (member for unit in units for member in unit.members):
            if _could_stay(member):
                self._stay(member)
        if _is_kept_together(units[0]) and any(map(is_moved, units)):
            trial.undo()

    def keep_in_place(self, used: Sequence[EvictionUnit], asking: Sequence[Member]) -> None:
        """Gives moved pods their own GPUs back where those who asked can take others of the same
        node: the ones of pods that are lost.
        """
        for unit in used:
            for member in unit.members if not _is_kept_together(unit) else ():
                if member.status == "pipelined" and member.old is not None:
                    self._swap(member, [m for m in asking if m.node is member.old])

    def _swap(self, member: Member, asking: list[Member]) -> None:
        trial, node = TentativeChanges(self.state, self.pool), member.old
        assert node is not None
        for other in asking:
            self.state.put(other, "pending")
        if _could_stay(member):
            self._stay(member)
            if all(self._seat_on(other, node) for other in asking):
                return
        trial.undo()

    def _seat_on(self, member: Member, node: NodeState) -> bool:
        """A promise on this very node."""
        chosen = node.choose(member.need, self.pool.config.gpu_device or self.pool.config.gpu)
        if chosen is None or not node.has_spare(member.need):
            return False
        self.state.put(member, "pipelined", node, chosen[0], member.need.charge(node.capacity))
        return True

    def _is_refused(self, unit: EvictionUnit) -> bool:
        """Whether a bound of its queues stands against it: perhaps the one that it was evicted for."""
        return (
            refusal(self.pool.queue(unit.work.project), unit.charge, unit.work.preemptible)
            is not None
        )

    def _stay(self, member: Member) -> None:
        node, devices = (
            (member.old, member.old_devices)
            if member.old is not None
            else (member.node, member.devices)
        )
        assert node is not None
        self.state.put(member, "running", node, devices, member.need.charge(node.capacity))

    def _stay_all(self, unit: EvictionUnit) -> bool:
        if _is_kept_together(unit) and any(
            m.status == "pipelined" for m in unit.work.members.values()
        ):
            return False  # the rest of it goes to another domain
        trial = TentativeChanges(self.state, self.pool)
        for member in unit.members:
            if member.node is None or not member.node.is_free_on(member.need, member.devices):
                trial.undo()
                return False
            self._stay(member)
        return True


def _is_kept_together(unit: EvictionUnit) -> bool:
    """Whether its pods must be in one domain of a topology: then none of them goes back alone."""
    workload = unit.work.workload
    return workload.topology is not None or any(_has_topology(group) for group in workload.groups)


def _has_topology(group: SubGroup) -> bool:
    return group.topology is not None or any(_has_topology(inner) for inner in group.groups)


def _could_stay(member: Member) -> bool:
    """Whether a moved pod's own place is still free."""
    return (
        member.status == "pipelined"
        and member.old is not None
        and member.old.is_free_on(member.need, member.old_devices)
    )
