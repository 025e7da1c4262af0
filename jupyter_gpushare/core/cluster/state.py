"""The mutable cluster model. Every change can be undone through the undo log.

A pod's effect on its node, queue and indexes depends on its status and place alone. So one method,
`put`, makes every change, and undoing calls it with the former values.
"""

from __future__ import annotations

from collections.abc import Iterable

from ..model.amounts import NOTHING, Amounts
from ..model.errors import NotFound
from ..model.model import DEFAULT_POOL, Node, Policy
from ..model.requirements import RequirementsCache
from .bookings import ClusterBookings, promised_quotas, with_bookings
from .cow_dict import CowDict
from .easiest_requests import EasiestRequests
from .nodes import HELD, LEAVING, PROMISED, NodeState
from .pending_index import PendingIndex
from .pools import PoolState, queue_specs
from .work import ACTIVE, Member, Status, Work

__all__ = ["State"]

PlacementState = tuple[
    Status, NodeState | None, tuple[int, ...], Amounts, NodeState | None, tuple[int, ...]
]


class State(PendingIndex):
    """Nodes, pools, queues and workloads, with indexes. Cycles use it directly; other packages use
    `Cluster`.
    """

    def __init__(self, policy: Policy) -> None:
        super().__init__()
        self.needs = RequirementsCache()
        self.usage: dict[tuple[str, str], tuple[int, int, int]] = {}
        self.unsettled: dict[Member, None] = {}
        """Bound or promised a place by the last cycle."""
        self.replanned: dict[Member, tuple[int, ...]] = {}
        """Running pods that this cycle planned on other devices, and their devices before."""
        self.nominees: dict[Member, None] = {}
        """Pending, and promised a node by the last cycle."""
        self.next_turn: int | None = None
        """When a protected turn ends for which a workload waits in this cycle."""
        self.host_full: set[tuple[str, str]] = set()
        """Pools and projects whose idle workloads stay because their memory cannot be saved."""
        self.bookings = ClusterBookings()
        self.rooms: dict[str, Work] = {}
        """Workloads that keep GPUs free for bookings, by id."""
        self.rooms_tried: dict[str, int] = {}
        """The version of each pool at which its rooms found no places."""
        self.install(policy)

    # -- policy and nodes

    def install(self, policy: Policy) -> None:
        """Rebuilds pools and queues and puts all pods back. Raises `InvalidInput` with nothing
        changed.
        """
        specs = with_bookings(queue_specs(policy), self.bookings.open)
        placed = [
            m for work in self.works.values() for m in work.members.values() if m.node is not None
        ]
        for member in placed:
            self._remove_usage(member)
        for work in self.works.values():
            self._update_candidate(work, away=True)
        self.policy = policy
        self.people.use(policy)
        configs = {config.name: config for config in policy.node_pools}
        configs.setdefault(DEFAULT_POOL, Policy().node_pools[0])
        kept = {pool.name: pool.reservation for pool in self.pools.values()}
        self.pools = {
            name: PoolState(
                config,
                specs,
                self.versions,
                self.people,
                promised_quotas(specs, self.bookings, name, self.people),
            )
            for name, config in sorted(configs.items())
        }
        for pool in self.pools.values():
            pool.reservation = kept.get(pool.name)
        self.projects = {project.name: project for project in policy.projects}
        for node in self.nodes.values():
            node.pool = self.pool_of(node.node)
            self.pools[node.pool].nodes[node.name] = node
        for pool in self.pools.values():
            pool.summarize_nodes()
            for node in pool.nodes.values():
                pool.reindex(node)
        self.eq_classes, self.by_pools, self.easiest = {}, {}, EasiestRequests()
        self.waiting, self.unschedulable = CowDict(), {}
        self.dirty.update(dict.fromkeys(self.works.values()))
        for work in self.dirty:
            work.eq_class = None
        for member in placed:
            self._add_usage(member)
        for work in self.works.values():
            self._update_candidate(work)

    def book(self, bookings: ClusterBookings) -> None:
        """Sets the bookings that are known and open, which changes quotas."""
        self.undo_log.push(self._book, self.bookings)
        self._book(bookings)

    def _book(self, bookings: ClusterBookings) -> None:
        self.bookings = bookings
        self.booked_by_members = frozenset(w.project for w in bookings.windows if w.user)
        self.install(self.policy)

    def pool_of(self, node: Node) -> str:
        """The pool that a node names, else the first whose label it has, else `default`."""
        if node.pool != DEFAULT_POOL and node.pool in self.pools:
            return node.pool
        for pool in self.policy.node_pools:
            if pool.label is not None and node.labels.get(pool.label[0]) == pool.label[1]:
                return pool.name
        return DEFAULT_POOL

    def join(self, node: Node) -> None:
        """Adds a node that was not known."""
        state = NodeState(node, self.pool_of(node))
        self._attach(state)
        self.undo_log.push(self._detach, state)

    def leave(self, state: NodeState) -> None:
        """Removes a node without pods."""
        self._detach(state)
        self.undo_log.push(self._attach, state)

    def reload(self, state: NodeState, node: Node) -> None:
        """Replaces the description of a node; its pods stay."""
        self.undo_log.push(self._reload, state, state.node)
        self._reload(state, node)

    def _attach(self, state: NodeState) -> None:
        self.nodes[state.name] = state
        self.pools[state.pool].add(state)

    def _detach(self, state: NodeState) -> None:
        self.pools[state.pool].remove(state)
        del self.nodes[state.name]

    def _reload(self, state: NodeState, node: Node) -> None:
        members = self.members_on(state)
        works = dict.fromkeys(m.work for m in members)
        for work in works:
            self._update_candidate(work, away=True)
        for member in members:
            self._remove_usage(member)
        self._detach(state)
        state.load(node, self.pool_of(node))
        self._attach(state)
        for member in members:
            self._add_usage(member)
        for work in works:
            self._update_candidate(work)
            self.dirty[work] = None

    def members_on(self, state: NodeState) -> list[Member]:
        """Members that are, are promised or are still leaving here, by workload and name."""
        found = [m for m in state.pods if isinstance(m, Member)]
        return sorted(found, key=lambda m: m.key)

    # -- workloads

    def add_work(self, work: Work) -> None:
        self._add_work(work)
        self.undo_log.push(self._remove_work, work)

    def remove_work(self, work: Work) -> None:
        """Removes a workload, with all that its pods hold."""
        for member in work.members.values():
            if member.status != "succeeded":
                self.put(member, "failed")
        self._remove_work(work)
        self.undo_log.push(self._add_work, work)

    def _add_work(self, work: Work) -> None:
        self.works[work.id] = work
        if work.room is not None:
            self.rooms[work.id] = work
        self.mark_dirty(work)

    def _remove_work(self, work: Work) -> None:
        del self.works[work.id]
        self.rooms.pop(work.id, None)
        self.mark_dirty(work)

    # -- placing pods

    def put(
        self,
        member: Member,
        status: Status,
        node: NodeState | None = None,
        devices: tuple[int, ...] = (),
        charge: Amounts = NOTHING,
        old: NodeState | None = None,
        old_devices: tuple[int, ...] = (),
    ) -> None:
        """Sets a pod's status and place, with everything that depends on them."""
        before = (
            member.status,
            member.node,
            member.devices,
            member.charge,
            member.old,
            member.old_devices,
        )
        if self.people.is_used and member.work.room is None:
            self._settle_person(member, status, node)
        self.undo_log.push(self._put, member, before)
        self._put(member, (status, node, devices, charge, old, old_devices))

    def _settle_person(self, member: Member, status: Status, node: NodeState | None) -> None:
        """Charges the person until now, before the share changes."""
        work = member.work
        if work.promoted and status == "bound":
            self.undo_log.assign(work, "promoted", False)
        if status == "pending" and member.status in ("running", "bound", "releasing"):
            self.undo_log.assign(work, "pending_since", self.people.now)
        pools = {each.pool for each in (member.node, node) if each is not None}
        for name in sorted(pools):
            people = self.pools[name].queue(work.project).people
            if people is not None:
                people.settle(work.user)

    def replan(self, member: Member, devices: tuple[int, ...]) -> None:
        """Plans a pod on other devices of its node."""
        if member.status == "running" and member not in self.replanned:
            self.replanned[member] = member.devices
            self.undo_log.push(self._forget_replan, member)
        self.put(member, member.status, member.node, devices, member.charge)

    def _forget_replan(self, member: Member) -> None:
        del self.replanned[member]

    def _put(self, member: Member, placement: PlacementState) -> None:
        if {member.status, placement[0]} == {"bound", "running"} and placement[1:4] == (
            member.node,
            member.devices,
            member.charge,
        ):
            # A bound pod starts to run: nothing is released, so results about room stay valid.
            self._count(member, -1)
            member.status = placement[0]
            self._count(member, 1)
            assert member.node is not None
            self.pools[member.node.pool].touch()  # it may be evicted from now on.
        else:
            self._remove_usage(member)
            self._count(member, -1)
            (
                member.status,
                member.node,
                member.devices,
                member.charge,
                member.old,
                member.old_devices,
            ) = placement
            self._count(member, 1)
            self._add_usage(member)
        work = member.work
        self.dirty[work] = None
        if work.preemptible:
            self._update_candidate(work)

    def nominate(self, member: Member, node: str | None) -> None:
        """Sets or clears the node that a pod was promised."""
        self.undo_log.push(self._nominate, member, member.nominated)
        self._nominate(member, node)

    def _nominate(self, member: Member, node: str | None) -> None:
        member.work.nominated += (node is not None) - (member.nominated is not None)
        member.nominated = node
        self.dirty[member.work] = None
        if node is None:
            self.nominees.pop(member, None)
        else:
            self.nominees[member] = None

    def _count(self, member: Member, sign: int) -> None:
        podset, status = member.podset, member.status
        if status == "pending":
            podset.pending += sign
        elif status in ACTIVE:
            podset.active += sign
            podset.used += sign
            if status == "running":
                podset.running += sign
            elif sign > 0:
                self.unsettled[member] = None
            else:
                self.unsettled.pop(member, None)
        elif status == "releasing":
            podset.used += sign
        elif status == "succeeded":
            member.work.succeeded += sign
            if member.work.workload.done_counts:
                podset.count_succeeded(sign)

    def _remove_usage(self, member: Member) -> None:
        """Removes a member's use of its node."""
        node = member.node
        if node is None:
            return
        self._change_usage(member, -1)
        node.pods.pop(member, None)
        if member.old is not None:
            member.old.pods.pop(member, None)

    def _add_usage(self, member: Member) -> None:
        """Adds a member's use of its node."""
        node = member.node
        if node is None:
            return
        node.pods[member] = member.need
        if member.old is not None:
            member.old.pods[member] = member.need
        self._change_usage(member, 1)

    def _change_usage(self, member: Member, sign: int) -> None:
        node, need, status = member.node, member.need, member.status
        assert node is not None
        pool = self.pools[node.pool]
        if status == "releasing":
            node.change(need, member.devices, LEAVING, sign)
        else:
            node.change(need, member.devices, PROMISED if status == "pipelined" else HELD, sign)
            leaf = pool.queue(member.work.project)
            leaf.hold(member.charge, sign, not member.work.preemptible)
            if leaf.people is not None and member.work.room is None:
                self._hold_for_person(member, sign)
        pool.touch(freed=sign < 0)
        pool.reindex(node)
        if member.old is not None:
            old_pool = self.pools[member.old.pool]
            member.old.change(need, member.old_devices, LEAVING, sign)
            old_pool.touch(freed=True)
            old_pool.reindex(member.old)

    def _hold_for_person(self, member: Member, sign: int) -> None:
        """A limit of a person counts in all pools, so a release may help in others too."""
        assert member.node is not None
        people = self.pools[member.node.pool].queue(member.work.project).people
        assert people is not None
        people.hold(member.work.user, sign * member.charge.gpu)
        if sign < 0 and member.work.project in self.people.limits:
            for pool in self.pools.values():
                if pool.name != member.node.pool:
                    pool.touch(freed=True)

    def _update_candidate(self, work: Work, away: bool = False) -> None:
        """Updates the candidates for eviction of its queue: preemptible workloads with running
        pods.
        """
        pool = None if away or not work.preemptible or not work.running else work.pool()
        wanted = None if pool is None else (pool, work.order_key())
        if wanted == work.listed:
            return
        if work.listed is not None:
            self.pools[work.listed[0]].queue(work.project).remove_candidate(work.listed[1])
        if wanted is not None:
            self.pools[wanted[0]].queue(work.project).add_candidate(wanted[1], work)
        work.listed = wanted

    # -- finding

    def work(self, id_: str) -> Work:
        """Raises `NotFound`."""
        if id_ not in self.works:
            raise NotFound(f"there is no workload {id_}", field="id")
        return self.works[id_]

    def mark_dirty(self, work: Work) -> None:
        """It is classified again before the next cycle."""
        self.dirty[work] = None

    def member(self, workload: str, pod: str) -> Member:
        """Raises `NotFound`."""
        work = self.works.get(workload)
        if work is None:
            raise NotFound(f"there is no workload {workload}", field="workload")
        if pod not in work.members:
            raise NotFound(f"workload {workload} has no pod {pod}", field="pod")
        return work.members[pod]

    def stamp(self) -> list[tuple[PoolState, int, int]]:
        """The pools' versions, for `restamp` after an exact undo."""
        return [(pool, pool.version, pool.freed) for pool in self.pools.values()]

    def restamp(self, stamps: Iterable[tuple[PoolState, int, int]]) -> None:
        for pool, version, freed in stamps:
            pool.version, pool.freed = version, freed
