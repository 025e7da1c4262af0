"""The scheduler service: users' commands, agents' messages and cycles. Every change is committed
before it is announced.

Knows nothing of HTTP, sockets or tokens. Runs on one thread (an event loop's) and never blocks.
`clock` gives wall-clock milliseconds; `loop` decides when cycles and ticks run.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Final

from jupyter_gpushare import messages as m
from jupyter_gpushare.core.model.decisions import Decisions
from jupyter_gpushare.core.model.errors import Unavailable
from jupyter_gpushare.core.model.events import PolicyChanged

from ..auth.authorization import Authorization
from ..auth.identity import Identity
from ..policy.policy_file import LoadedPolicy
from ..state.audit import audit
from ..state.nodes import Send
from ..state.restore import restore
from ..state.unit_of_work import ChangeListener, UnitOfWork
from ..store.store import Store
from .booking_feeds import BookingFeeds
from .bookings import BookingService
from .cordon import Cordons
from .cycles import CycleRunner
from .metering import UsageMeter
from .output_budget import OutputBudget
from .pending_status import PendingStatus
from .people import PeopleService
from .platform_nodes import PlatformNodes
from .pod_budget import PodBudget
from .policy_preview import PolicyPreview, lines_of
from .queries import Queries
from .reports import AgentReports
from .wait_estimates import WaitEstimates
from .workload_commands import WorkloadCommands

__all__ = ["SchedulerService"]

LEASES_PER_TICK: Final = 300
"""Leases whose usage is written at once: a thousand would delay a grant for as long as a grant
takes.
"""


class SchedulerService:
    """Every method raises `GpuShareError` for the caller and then has changed nothing."""

    def __init__(
        self,
        store: Store,
        loaded: LoadedPolicy,
        listener: ChangeListener,
        *,
        clock: Callable[[], int],
        pod_budget: PodBudget | None = None,
        output_per_user: int = 0,
    ) -> None:
        """`pod_budget` None, `output_per_user` 0: unlimited."""
        self.unit_of_work = unit_of_work = UnitOfWork(store, loaded, listener, clock)
        restore(unit_of_work)
        unit_of_work.public_status = lambda: self.queries.status(Identity.nobody())
        self.reports = AgentReports(unit_of_work, OutputBudget(store, output_per_user))
        self.policy_preview = PolicyPreview(unit_of_work)
        self.cordons = Cordons(unit_of_work)
        self.platform = PlatformNodes(unit_of_work, self.reports)
        self.wait_estimates = WaitEstimates(unit_of_work)
        self.reports.turns.on_idle = self.wait_estimates.turns.idle
        self.pending_status = PendingStatus(unit_of_work, self.wait_estimates)
        self.cycles = CycleRunner(unit_of_work, self.pending_status, self.wait_estimates)
        self.visibility = Authorization(lambda: unit_of_work.loaded)
        self.meter = UsageMeter(store)
        self.queries = Queries(
            unit_of_work,
            self.visibility,
            self.pending_status,
            self.policy_preview,
            self.reports.write_usage,
            self.platform.undrained,
        )
        self.people = PeopleService(
            unit_of_work, self.visibility, self.queries, self.pending_status
        )
        self.bookings = BookingService(unit_of_work, self.visibility)
        self.bookings.windows.tick(unit_of_work.clock())
        self.booking_feeds = BookingFeeds(unit_of_work, self.bookings)
        self.commands = WorkloadCommands(
            unit_of_work,
            self.visibility,
            self.queries,
            self.pending_status,
            self.wait_estimates,
            pod_budget or PodBudget(),
        )

    # -- users' commands --

    def submit(self, identity: Identity, request: m.WorkloadRequest) -> m.WorkloadView:
        """Adds a workload; see `WorkloadCommands.submit`."""
        return self.commands.submit(identity, request)

    def end(self, identity: Identity, id_: str) -> m.Ended:
        """Ends a workload and releases its GPUs. Idempotent."""
        return self.commands.end(identity, id_)

    def rename(self, identity: Identity, id_: str, body: m.WorkloadName) -> m.WorkloadView:
        """Changes a workload's name wherever it is displayed. Idempotent."""
        return self.commands.rename(identity, id_, body)

    def what_if(
        self, identity: Identity, request: m.WorkloadRequest, instead_of: str | None = None
    ) -> m.WhatIfAnswer:
        """Whether a request would start; see `WorkloadCommands.what_if`."""
        return self.commands.what_if(identity, request, instead_of)

    # -- agents --

    def agent_hello(self, hello: m.AgentHello, send: Send) -> str:
        """A node joins (again); `send` sends to its agent. Returns the node's name."""
        return self.reports.hello(hello, send)

    def agent_report(self, node: str, message: m.FromAgent) -> None:
        """One report of an agent."""
        self.reports.receive(node, message)

    def agent_disconnected(self, node: str, send: Send) -> None:
        """The connection to an agent broke."""
        self.reports.disconnected(node, send)
        with suppress(Unavailable):  # otherwise at the next tick
            self.platform.tick()

    # -- the cycle --

    def run_cycle(self, done: Callable[[str], None] = lambda _action: None) -> Decisions:
        """Runs one cycle and commits its decisions. See `CycleRunner.run`."""
        return self.cycles.run(done)

    @property
    def is_waiting(self) -> bool:
        """Whether time alone may change something: workloads are pending."""
        return bool(self.unit_of_work.decisions.reasons)

    def tick(self, now: int) -> None:
        """Applies what changes with time: silent agents, time limits, past usage of queues."""
        if self.unit_of_work.store.problem is not None:
            with suppress(Unavailable), self.unit_of_work.transaction():
                pass  # tells whether changes can be stored again
        self.unit_of_work.history.sample(now, self.unit_of_work.decisions.queues)
        nodes = self.unit_of_work.nodes
        self.unit_of_work.node_history.sample(now, nodes.reports, set(nodes.connected()))
        with suppress(Unavailable):  # otherwise at the next tick
            self.reports.time_limits.tick(now)
            self.cordons.tick()
            self.platform.tick()
            self.wait_estimates.tick(now)
            self.bookings.windows.tick(now)
            self.unit_of_work.people.prune(self.unit_of_work.store, now)
        with suppress(Unavailable):  # kept, and tried again at the next tick
            self.reports.write_usage(LEASES_PER_TICK)
        self.reports.check_silent(now)
        if facts := self.meter.measure(self.unit_of_work.cluster, now):
            for fact in facts:
                self.unit_of_work.cluster.apply(fact)
            self.unit_of_work.needs_cycle = True

    # -- policy --

    def check_policy(self, body: m.PolicyText) -> m.PolicyCheck:
        """What a policy file would change, and whom it affects; changes nothing."""
        return self.policy_preview.check(body)

    def use_policy(self, loaded: LoadedPolicy) -> None:
        """Puts a policy into force, as a whole or not at all."""
        check = self.policy_preview.compare(loaded)
        try:
            with self.unit_of_work.transaction() as write:
                self.unit_of_work.cluster.apply(PolicyChanged(loaded.policy))
                self.unit_of_work.nodes.use_policy(loaded)
                if check.changes:
                    audit(
                        write,
                        self.unit_of_work.clock(),
                        "policy file",
                        "policy",
                        loaded.source,
                        "; ".join(lines_of(check)),
                    )
        except BaseException:
            self.unit_of_work.nodes.loaded = self.unit_of_work.loaded
            raise
        self.unit_of_work.loaded, self.unit_of_work.policy_problems = loaded, []
        self.unit_of_work.bookings.use_policy(loaded.bookings)
        self.bookings.windows.changed()
        self.reports.time_limits.use_rules()
        self.policy_preview.taken(check)
        for node in self.unit_of_work.nodes.connected():
            self.reports.send_plan(node)
        self.unit_of_work.status_changed()
        self.unit_of_work.wake()

    def refuse_policy(self, problems: list[str]) -> None:
        """The file is invalid: the old policy stays in force, and the status lists the problems."""
        if problems != self.unit_of_work.policy_problems:
            self.unit_of_work.policy_problems = problems
            self.unit_of_work.status_changed()
