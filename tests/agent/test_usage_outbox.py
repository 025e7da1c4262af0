"""What the scheduler has not acknowledged is said again under its number, through lost answers,
broken links and kills of the agent.
"""

from __future__ import annotations

from jupyter_gpushare.messages import UsageAcknowledged, UsageReport
from node_agent.reconcile.usage_sampler import UsageSampler
from node_agent.state.journal import AgentJournal
from node_agent.state.usage_outbox import UsageOutbox
from tests.agent.simulated_node import GIB, World, play


def test_one_report_is_under_way_until_it_is_taken():
    usage_outbox = UsageOutbox()
    usage_outbox.row("a").held_ms += 5
    assert usage_outbox.begin()
    usage_outbox.row("a").held_ms += 7
    assert not usage_outbox.begin()
    assert [(row.lease, row.held_ms) for row in usage_outbox.in_flight()] == [("a", 5)]
    assert not usage_outbox.acknowledged(usage_outbox.life, 2)
    assert not usage_outbox.acknowledged("another", 1)
    assert usage_outbox.acknowledged(usage_outbox.life, 1)
    assert not usage_outbox.acknowledged(usage_outbox.life, 1)
    assert usage_outbox.begin()
    assert [(usage_outbox.number, row.held_ms) for row in usage_outbox.in_flight()] == [(2, 7)]


def told(world: World) -> list[UsageReport]:
    return [body for body in world.scheduler.heard if isinstance(body, UsageReport) and body.rows]


def test_what_is_not_taken_is_said_again_and_what_came_since_comes_after_it():
    async def story():
        async with World() as world:
            world.scheduler.acknowledges = False
            node, usage = world.agent.node, UsageSampler(world.agent.node)
            node.usage_outbox.row("gone").held_ms += 3
            usage.report()
            node.usage_outbox.row("a").held_ms += 4
            usage.report()
            await world.until(lambda: len(told(world)) == 2, "said again")
            first, again = told(world)
            assert (first.number, first.rows) == (again.number, again.rows)
            world.agent.session.on_usage(UsageAcknowledged(life=first.life, number=first.number))
            usage.report()
            await world.until(lambda: len(told(world)) == 3, "the next one")
            assert [
                (body.number, [row.lease for row in body.rows]) for body in told(world)[2:]
            ] == [(first.number + 1, ["a"])]

    play(story())


def test_a_later_life_of_the_agent_says_the_same_under_the_same_number():
    async def story():
        async with World() as world:
            world.scheduler.acknowledges = False
            await world.server.launch("a")
            world.scheduler.grant("a", gpu=0, request=40 * GIB)
            await world.attached("a")
            usage = world.agent.usage
            usage.sample()
            usage.report()
            usage.sample()
            before = world.agent.node.usage_outbox
            world.agent.journal.write = lambda _node: None  # killed: it writes no farewell
            await world.agent.stop()
            await world.start_agent()
            assert world.agent.node.usage_outbox.life == before.life
            assert (world.agent.node.usage_outbox.number, world.agent.node.usage_outbox.sent) == (
                before.number,
                before.sent,
            )
            world.scheduler.heard.clear()
            world.agent.usage.report()
            await world.until(lambda: told(world), "said again")
            assert (told(world)[0].life, told(world)[0].number) == (before.life, before.number)

    play(story())


def test_a_journal_of_an_older_agent_begins_a_tally(tmp_path):
    (tmp_path / "j.json").write_text('{"rules": {}, "kernels": [], "ends": []}')

    async def story():
        async with World() as world:
            AgentJournal(tmp_path / "j.json").restore(world.agent.node)
            assert (world.agent.node.usage_outbox.number, world.agent.node.usage_outbox.sent) == (
                0,
                {},
            )

    play(story())
