"""What agents report of usage: acknowledged is on the disk, said twice is counted once, and nothing
of it is lost, whichever process is killed.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Iterator

import pytest

from jupyter_gpushare import messages as m
from jupyter_gpushare.scheduler.auth.identity import Identity
from jupyter_gpushare.scheduler.policy.policy_file import parse_policy
from jupyter_gpushare.scheduler.service.service import SchedulerService
from jupyter_gpushare.scheduler.store.store import Store, StoreUnavailable
from node_agent.state.usage_outbox import UsageOutbox
from tests.scheduler.agents import node
from tests.scheduler.databases import Database, used_in

ADMIN = Identity("root", scope="admin")
NODES = ("n0", "n1")


class Quiet:
    def publish(self, frame: m.SchedulerFrame, project: str | None, user: str | None) -> None: ...


class Agent:
    """One node's: a tally, what of it was written down, and a network that loses and repeats in
    both directions.
    """

    def __init__(self, name: str) -> None:
        self.node, self.usage_outbox, self.leases = node(name), UsageOutbox(), list[str]()
        self.journal = m.encode(self.usage_outbox)
        self.used = 0
        self.up: deque[m.UsageReport] = deque(maxlen=3)
        """What was under way lately, and may arrive again."""
        self.down: deque[m.UsageAcknowledged] = deque()

    def use(self, dice: random.Random) -> None:
        for lease in self.leases:
            ms = dice.randrange(1000)
            self.usage_outbox.row(lease).held_ms += ms
            self.used += ms

    def report(self) -> m.UsageReport:
        """Written down before it leaves."""
        if self.usage_outbox.begin():
            self.journal = m.encode(self.usage_outbox)
        said = m.UsageReport(
            since_ms=1,
            life=self.usage_outbox.life,
            number=self.usage_outbox.number,
            rows=self.usage_outbox.in_flight(),
        )
        self.up.append(said)
        return said

    def hears(self) -> None:
        while self.down:
            answer = self.down.popleft()
            self.usage_outbox.acknowledged(answer.life, answer.number)

    def die(self) -> None:
        """kill -9: what was sampled since it last wrote is gone, which is less than one report."""
        self.hears()
        before, self.usage_outbox = self.usage_outbox, m.decode(UsageOutbox, self.journal)
        if (self.usage_outbox.number, bool(self.usage_outbox.sent)) != (
            before.number,
            bool(before.sent),
        ):
            assert not before.sent, "only an acknowledgement can be forgotten"
        self.used -= _ms(before.rows) - _ms(self.usage_outbox.rows)


def _ms(rows: dict) -> int:
    return sum(row.held_ms for row in rows.values())


class Lab:
    """A scheduler that may be killed, on a database that may refuse, and two agents."""

    def __init__(self, database: Database) -> None:
        self.database, self.agents, self.asked = database, {name: Agent(name) for name in NODES}, 0
        self.store: Store | None = None
        self.restart()

    def restart(self) -> None:
        """As after kill -9: what was only in memory is gone."""
        if self.store is not None:
            self.store.close()
        self.store = Store(self.database.url)
        policy = parse_policy("projects: [{name: vision}]")
        self.service = SchedulerService(self.store, policy, Quiet(), clock=lambda: 3_600_000_000)
        for agent in self.agents.values():
            self.service.agent_hello(m.AgentHello(version="1", node=agent.node), self._to(agent))

    def _to(self, agent: Agent):
        def send(order: m.ToAgent) -> None:
            match order:
                case m.LeaseUpdated(lease=lease):
                    agent.leases.append(lease.id)
                case m.UsageAcknowledged():
                    agent.down.append(order)

        return send

    def begin_or_end(self, dice: random.Random) -> None:
        """A workload, or the end of one: the agent may speak of its lease long after that."""
        if self.service.unit_of_work.records and dice.random() < 0.5:
            self.service.end(ADMIN, dice.choice(sorted(self.service.unit_of_work.records)))
        else:
            self.asked += 1
            self.service.submit(
                ADMIN, m.WorkloadRequest(id=f"w{self.asked}", pods=[m.PodRequest(gpu=0.2)])
            )
        self.service.run_cycle()

    def say(self, agent: Agent, report: m.UsageReport) -> None:
        self.service.agent_report(agent.node.name, report)

    def settle(self) -> None:
        """Everything arrives, and is answered."""
        for _ in range(4):
            for agent in self.agents.values():
                agent.hears()
                if agent.report().rows:
                    self.say(agent, agent.up[-1])
            self.service.reports.write_usage()


@pytest.fixture
def lab(database: Database) -> Iterator[Lab]:
    lab = Lab(database)
    yield lab
    assert lab.store is not None
    lab.store.close()


def used(lab: Lab) -> int:
    return sum(agent.used for agent in lab.agents.values())


@pytest.mark.parametrize("seed", range(12))
def test_nothing_is_lost_and_nothing_is_counted_twice(lab: Lab, seed: int):
    dice = random.Random(seed)
    for _ in range(150):
        agent = lab.agents[dice.choice(NODES)]
        match dice.randrange(10):
            case 0:
                lab.begin_or_end(dice)
            case 1 | 2:
                agent.use(dice)
            case 3 | 4:
                if agent.report().rows and dice.random() < 0.7:  # else it is lost on its way
                    lab.say(agent, agent.up[-1])
            case 5:
                if agent.up:  # a late one, once more
                    lab.say(agent, dice.choice(agent.up))
            case 6:
                lab.service.reports.write_usage(dice.choice([1, 2, None]))
            case 7:
                agent.hears() if dice.random() < 0.7 else agent.down.clear()
            case 8 if dice.random() < 0.5:
                lab.restart()
            case 9 if dice.random() < 0.5:
                agent.die()
    lab.settle()
    assert not any(
        agent.usage_outbox.sent or agent.usage_outbox.rows for agent in lab.agents.values()
    )
    assert used_in(lab.database.url) == used(lab) > 0


def test_what_is_acknowledged_is_on_the_disk(lab: Lab):
    """Nothing is answered before its commit, nor when the commit failed."""
    lab.begin_or_end(random.Random(1))
    agent = next(agent for agent in lab.agents.values() if agent.leases)
    agent.use(random.Random(1))
    lab.say(agent, agent.report())
    assert not agent.down
    with lab.database.refusing(lab.store), pytest.raises(StoreUnavailable):
        lab.service.reports.write_usage()
    assert not agent.down
    lab.service.reports.write_usage()
    assert used_in(lab.database.url) == agent.used
    assert [(order.life, order.number) for order in agent.down] == [(agent.usage_outbox.life, 1)]
    agent.down.clear()  # the answer is lost
    lab.restart()
    lab.say(agent, agent.report())
    assert len(agent.down) == 1
    lab.service.reports.write_usage()
    assert used_in(lab.database.url) == agent.used


def test_what_was_used_before_an_end_that_came_first_is_booked_to_who_used_it(lab: Lab):
    lab.service.submit(
        ADMIN, m.WorkloadRequest(id="w", name="w.ipynb", user="ada", pods=[m.PodRequest(gpu=1)])
    )
    lab.service.run_cycle()
    agent = next(agent for agent in lab.agents.values() if agent.leases)
    agent.usage_outbox.row(agent.leases[0]).held_ms += 3_600_000
    lab.service.end(ADMIN, "w")
    lab.say(agent, agent.report())
    [row] = lab.service.queries.usage(ADMIN, "notebook").usage
    assert (row.project, row.user, row.notebook, row.held) == ("vision", "ada", "w.ipynb", 1.0)


def test_a_node_speaks_of_its_own_leases_only_also_of_past_ones(lab: Lab):
    lab.begin_or_end(random.Random(1))
    mine = next(agent for agent in lab.agents.values() if agent.leases)
    other = next(agent for agent in lab.agents.values() if agent is not mine)
    other.usage_outbox.row(mine.leases[0]).held_ms += 5
    other.usage_outbox.row("never@given").held_ms += 5
    lab.service.end(ADMIN, "w1")
    lab.say(other, other.report())
    lab.service.reports.write_usage()
    other.hears()
    assert not other.usage_outbox.sent, "it is dealt with: saying it again would change nothing"
    assert used_in(lab.database.url) == 0


def test_an_older_agent_is_counted_as_it_speaks(lab: Lab):
    lab.begin_or_end(random.Random(1))
    agent = next(agent for agent in lab.agents.values() if agent.leases)
    for _ in range(2):
        row = m.LeaseUsage(
            lease=agent.leases[0], held_ms=5, busy_ms=0, used_mib_ms=0, borrowed_mib_ms=0
        )
        lab.say(agent, m.UsageReport(since_ms=1, rows=[row]))
        lab.service.reports.write_usage()
    assert used_in(lab.database.url) == 10
    assert not agent.down
