"""The cluster in memory and the few ways in which it changes. Decides nothing; every change can be
undone through the journal.

A pod's effect on node, queue and indexes is a function of where it is and in which status. So one
function moves it (`put`), and undoing is moving it back.
"""

from __future__ import annotations

from collections.abc import Iterable

from ..model.amounts import NOTHING, Amounts
from ..model.errors import NotFound
from ..model.model import DEFAULT_POOL, Node, Policy
from ..model.requirements import RequirementsCache
from .cow_dict import CowDict
from .nodes import HELD, LEAVING, PROMISED, NodeState
from .pending_index import PendingIndex
from .pools import PoolState, queue_specs, tick
from .queues import QueueState
from .work import ACTIVE, Member, Status, Work

__all__ = ["State"]

Where = tuple[Status, NodeState | None, tuple[int, ...], Amounts, NodeState | None, tuple[int, ...]]


class State(PendingIndex):
    """Nodes, pools, queues and workloads, with indexes. The cycle works on this; other rooms see
    `Cluster`.
    """

    def __init__(self, policy: Policy) -> None:
        super().__init__()
        self.needs = RequirementsCache()
        self.usage: dict[tuple[str, str], tuple[int, int, int]] = {}
        self.unsettled: dict[Member, None] = {}
        """Bound or promised by the last cycle."""
        self.nominees: dict[Member, None] = {}
        """Pending, and promised a node by the last cycle."""
        self.install(policy)

    # -- policy and nodes
    # ------------------------------------------------------------------------------------------

    def install(self, policy: Policy) -> None:
        """Builds pools and queues anew and puts everything back in its place. Raises `InvalidInput`
        and then has changed nothing.
        """
        specs = queue_specs(policy)
        placed = [
            m for work in self.works.values() for m in work.members.values() if m.node is not None
        ]
        for member in placed:
            self._lift(member)
        for work in self.works.values():
            self._relist(work, away=True)
        self.policy = policy
        configs = {config.name: config for config in policy.node_pools}
        configs.setdefault(DEFAULT_POOL, Policy().node_pools[0])
        kept = {pool.name: pool.reservation for pool in self.pools.values()}
        self.pools = {name: PoolState(config, specs) for name, config in sorted(configs.items())}
        for pool in self.pools.values():
            pool.reservation = kept.get(pool.name)
        self.projects = {project.name: project for project in policy.projects}
        for node in self.nodes.values():
            node.pool = self.pool_of(node.node)
            self.pools[node.pool].nodes[node.name] = node
        for pool in self.pools.values():
            pool.survey()
            for node in pool.nodes.values():
                pool.place(node)
        self.alike, self.waiting, self.apart = {}, CowDict(), {}
        self.dirty.update(dict.fromkeys(self.works.values()))
        for work in self.dirty:
            work.alike = None
        for member in placed:
            self._drop(member)
        for work in self.works.values():
            self._relist(work)

    def pool_of(self, node: Node) -> str:
        """The pool a node belongs to: the one it names, else the first whose label it carries, else
        `default`.
        """
        if node.pool != DEFAULT_POOL and node.pool in self.pools:
            return node.pool
        for pool in self.policy.node_pools:
            if pool.label is not None and node.labels.get(pool.label[0]) == pool.label[1]:
                return pool.name
        return DEFAULT_POOL

    def join(self, node: Node) -> None:
        """A node that was not known."""
        state = NodeState(node, self.pool_of(node))
        self._attach(state)
        self.journal.push(self._detach, state)

    def leave(self, state: NodeState) -> None:
        """A node that holds nothing any more."""
        self._detach(state)
        self.journal.push(self._attach, state)

    def reload(self, state: NodeState, node: Node) -> None:
        """What is known of a node changed; what runs there stays."""
        self.journal.push(self._reload, state, state.node)
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
            self._relist(work, away=True)
        for member in members:
            self._lift(member)
        self._detach(state)
        state.load(node, self.pool_of(node))
        self._attach(state)
        for member in members:
            self._drop(member)
        for work in works:
            self._relist(work)
            self.dirty[work] = None

    def members_on(self, state: NodeState) -> list[Member]:
        """Members that are, are promised or are still leaving here, by workload and name."""
        found = [m for m in state.pods if isinstance(m, Member)]
        return sorted(found, key=lambda m: m.key)

    # -- moving a pod
    # ----------------------------------------------------------------------------------------------

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
        """Changes a pod's status and place, and everything that follows from it."""
        before = (
            member.status,
            member.node,
            member.devices,
            member.charge,
            member.old,
            member.old_devices,
        )
        self.journal.push(self._put, member, before)
        self._put(member, (status, node, devices, charge, old, old_devices))

    def _put(self, member: Member, where: Where) -> None:
        if {member.status, where[0]} == {"bound", "running"} and where[1:4] == (
            member.node,
            member.devices,
            member.charge,
        ):
            self._count(
                member, -1
            )  # it only began to run: nothing was given back, and no verdict on room is out of date
            member.status = where[0]
            self._count(member, 1)
            assert member.node is not None
            self.pools[member.node.pool].version = tick()  # but it may be a victim from now on
        else:
            self._lift(member)
            self._count(member, -1)
            (
                member.status,
                member.node,
                member.devices,
                member.charge,
                member.old,
                member.old_devices,
            ) = where
            self._count(member, 1)
            self._drop(member)
        work = member.work
        self.dirty[work] = None
        if work.preemptible:
            self._relist(work)

    def nominate(self, member: Member, node: str | None) -> None:
        """Remembers, or forgets, which node a pod was promised."""
        self.journal.push(self._nominate, member, member.nominated)
        self._nominate(member, node)

    def _nominate(self, member: Member, node: str | None) -> None:
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
                podset.did(sign)

    def _lift(self, member: Member) -> None:
        """Takes away what a member uses where it is."""
        node = member.node
        if node is None:
            return
        self._use(member, -1)
        node.pods.pop(member, None)
        if member.old is not None:
            member.old.pods.pop(member, None)

    def _drop(self, member: Member) -> None:
        """Adds what a member uses where it is."""
        node = member.node
        if node is None:
            return
        node.pods[member] = member.need
        if member.old is not None:
            member.old.pods[member] = member.need
        self._use(member, 1)

    def _use(self, member: Member, sign: int) -> None:
        node, need, status = member.node, member.need, member.status
        assert node is not None
        pool = self.pools[node.pool]
        if status == "releasing":
            node.change(need, member.devices, LEAVING, sign)
        else:
            node.change(need, member.devices, PROMISED if status == "pipelined" else HELD, sign)
            pool.queue(member.work.project).hold(member.charge, sign, not member.work.preemptible)
        pool.version = tick()
        if sign < 0:
            pool.freed = pool.version
        pool.place(node)
        if member.old is not None:
            old_pool = self.pools[member.old.pool]
            member.old.change(need, member.old_devices, LEAVING, sign)
            old_pool.version = old_pool.freed = tick()
            old_pool.place(member.old)

    def _relist(self, work: Work, away: bool = False) -> None:
        """Keeps the list of possible victims of its queue: preemptible workloads with running pods."""
        pool = None if away or not work.preemptible or not work.running else work.pool()
        wanted = None if pool is None else (pool, work.order_key())
        if wanted == work.listed:
            return
        if work.listed is not None:
            self.pools[work.listed[0]].queue(work.project).unlend(work.listed[1])
        if wanted is not None:
            self.pools[wanted[0]].queue(work.project).lend(wanted[1], work)
        work.listed = wanted

    # -- finding
    # ---------------------------------------------------------------------------------------------------

    def member(self, workload: str, pod: str) -> Member:
        """Raises `NotFound`."""
        work = self.works.get(workload)
        if work is None:
            raise NotFound(f"there is no workload {workload}", field="workload")
        if pod not in work.members:
            raise NotFound(f"workload {workload} has no pod {pod}", field="pod")
        return work.members[pod]

    def leaf(self, work: Work, pool: PoolState) -> QueueState:
        return pool.queue(work.project)

    def stamp(self) -> list[tuple[PoolState, int, int]]:
        """The pools' versions, to be put back by `restamp` after an exact undo."""
        return [(pool, pool.version, pool.freed) for pool in self.pools.values()]

    def restamp(self, stamps: Iterable[tuple[PoolState, int, int]]) -> None:
        for pool, version, freed in stamps:
            pool.version, pool.freed = version, freed
