"""Who may do what, cell by cell: every route by every caller, and every workload (own, a
colleague's, another project's) through every route.
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from jupyter_gpushare import messages as m
from jupyter_gpushare.core.model.errors import Unavailable
from jupyter_gpushare.routes import ROUTES
from jupyter_gpushare.scheduler.auth.permissions import CALLERS, OPENS, REACH, opens
from jupyter_gpushare.scheduler.policy.policy_file import parse_policy
from tests.scheduler.agents import FakeAgent
from tests.scheduler.permission_town import (
    COLUMN,
    OWNERS,
    PEOPLE,
    POLICY,
    PROJECTS,
    Town,
    address,
    story,
    town,
    within,
)

pytestmark = pytest.mark.usefixtures("on_both")


@story
async def test_every_route_opens_as_in_the_table(town: Town):
    for route in ROUTES:
        if route.scope == "secret":
            continue  # opened by a secret: test_booking_feeds.py
        for caller, column in COLUMN.items():
            answer = await town.ask(
                caller, "GET" if route.verb == "WS" else route.verb, address(route)
            )
            refused = 401 if caller == "nobody" else 403
            assert (answer.code == refused) is not opens(route, column), (
                route.name,
                caller,
                answer.code,
                answer.body[:200],
            )


def test_the_table_knows_every_route_and_nothing_else():
    """Every route that shows or changes workloads states how far each caller reaches."""
    told_of_workloads = {
        m.WorkloadView,
        m.Workloads,
        m.Waiting,
        m.Evictions,
        m.WhatIfAnswer,
        m.Ended,
        m.Nodes,
        m.People,
        m.SchedulerFrame,
    }
    names = {route.name for route in ROUTES}
    assert {route.name for route in ROUTES if route.answer in told_of_workloads} <= set(REACH)
    assert set(REACH) - {"notebook names"} <= names
    assert {route.scope for route in ROUTES} <= set(OPENS)
    for route in ROUTES:
        if route.name in REACH:
            assert {caller for caller in CALLERS if opens(route, caller)} == set(
                REACH[route.name]
            ), route.name


def test_nobody_reaches_more_than_the_next():
    """Pinned by hand: the table is what is tested elsewhere, so that a slip in it is seen here."""
    assert OPENS["open"] == OPENS["secret"] == set(CALLERS)
    assert OPENS["known"] == set(CALLERS) - {"nobody"}
    assert OPENS["person"] == {"person", "server", "admin"}
    assert OPENS["agent"] == {"agent", "admin"}
    assert OPENS["admin"] == {"admin"}
    assert {name for name, row in REACH.items() if "agent" in row} == {"agent"}
    assert not any("nobody" in row for row in REACH.values())
    changing = {
        name: row for name, row in REACH.items() if name in ("submit", "what_if", "rename", "logs")
    }
    assert all(row["person"] == row["server"] == "own" for row in changing.values())
    managed = {name for name, row in REACH.items() if "managed" in row.values()}
    assert managed == {"end", "people", "notebook names", "cancel_booking"}
    managers = {name for name, row in REACH.items() if "manages" in row.values()}
    assert managers == {"limit_person", "next_turn"}
    admins = {route.name for route in ROUTES if route.scope == "admin"}
    assert {"snapshot", "tokens", "create_token", "revoke_token"} <= admins


@story
async def test_workloads_are_visible_as_in_the_table(town: Town):
    for caller in PEOPLE:
        seen, named = within("workload", caller), within("notebook names", caller)
        listed = {w["id"]: w for w in (await town.read(caller, "/api/v1/workloads"))["workloads"]}
        assert set(listed) == {
            f"{OWNERS[one]}{n}" for one in within("workloads", caller) for n in (1, 2)
        }, caller
        for whose, user in OWNERS.items():
            answer = await town.ask(caller, "GET", f"/api/v1/workloads/{user}1")
            assert answer.code == (200 if whose in seen else 404), (caller, whose)
            assert (b"secret" in answer.body) is (whose in named), (caller, whose)
            if whose in seen:
                assert json.loads(answer.body) == listed[f"{user}1"]
                assert json.loads(answer.body)["pods"][0]["lease"]["user"] == user


@story
async def test_workloads_are_ended_as_in_the_table(town: Town):
    for caller in PEOPLE:
        for whose, user in OWNERS.items():
            id_ = f"{caller}-{user}".replace(" ", "-")
            await town.running.admin.submit(
                m.WorkloadRequest(
                    id=id_, project=PROJECTS[user], user=user, pods=[m.PodRequest(gpu=0.1)]
                )
            )
            answer = await town.ask(caller, "DELETE", f"/api/v1/workloads/{id_}")
            expected = (
                200
                if whose in within("end", caller)
                else 403
                if whose in within("workload", caller)
                else 404
            )
            assert answer.code == expected, (caller, whose, answer.body)
            assert (id_ in town.running.server.service.unit_of_work.records) is (expected != 200)


@story
async def test_workloads_are_renamed_as_in_the_table(town: Town):
    for caller in PEOPLE:
        for whose, user in OWNERS.items():
            name = f"{caller} was here"
            answer = await town.ask(caller, "PATCH", f"/api/v1/workloads/{user}1", {"name": name})
            expected = (
                200
                if whose in within("rename", caller)
                else 403
                if whose in within("workload", caller)
                else 404
            )
            assert answer.code == expected, (caller, whose, answer.body)
            assert (
                town.running.server.service.unit_of_work.records[f"{user}1"].request.name == name
            ) is (expected == 200)


@pytest.mark.parametrize("route", ["submit", "what_if"])
def test_requests_are_accepted_as_in_the_table(tmp_path: Path, route: str):
    async def told():
        async with town(tmp_path) as made:
            path = next(r.path for r in ROUTES if r.name == route)
            for caller in PEOPLE:
                for whose, user in OWNERS.items():
                    body = {
                        "id": f"{caller}-{user}",
                        "user": user,
                        "project": PROJECTS[user],
                        "pods": [{"gpu": 0.1}],
                    }
                    answer = await made.ask(caller, "POST", path, body)
                    assert answer.code == (200 if whose in within(route, caller) else 403), (
                        caller,
                        whose,
                        answer.body,
                    )
                    if answer.code == 403:
                        assert json.loads(answer.body)["error"]["field"] == "user"

    asyncio.run(told())


@story
async def test_only_who_may_end_a_workload_asks_what_would_be_in_its_place(town: Town):
    path = next(r.path for r in ROUTES if r.name == "what_if")
    for caller in PEOPLE:
        for whose, user in OWNERS.items():
            own = OWNERS["own"] if caller in ("person", "server") else user
            body = {"id": "instead", "user": own, "project": PROJECTS[own], "pods": [{"gpu": 0.1}]}
            answer = await town.ask(caller, "POST", f"{path}?instead_of={user}1", body)
            expected = (
                200
                if whose in within("end", caller)
                else 403
                if whose in within("workload", caller)
                else 404
            )
            assert answer.code == expected, (caller, whose, answer.body)
            assert expected == 200 or json.loads(answer.body)["error"]["field"] in (
                "instead_of",
                "user",
            ), (caller, whose, answer.body)


@story
async def test_a_member_asks_in_their_own_projects_only(town: Town):
    for caller, allowed in (
        ("person", False),
        ("server", False),
        ("everybody's server", False),
        ("admin", True),
        ("listed admin", True),
    ):
        body = {
            "id": f"{caller} over there",
            "user": "alice",
            "project": "language",
            "pods": [{"gpu": 0.1}],
        }
        if caller == "listed admin":
            body["user"] = "lisa"
        answer = await town.ask(caller, "POST", "/api/v1/workloads", body)
        assert answer.code == (200 if allowed else 403), (caller, answer.body)
        assert allowed or json.loads(answer.body)["error"]["field"] == "project"


@story
async def test_positions_are_visible_and_their_owners_as_in_the_table(town: Town):
    for caller in PEOPLE:
        rows = (await town.read(caller, "/api/v1/waiting"))["waiting"]
        assert [row["position"] for row in rows] == [1, 2, 3], caller
        assert sorted(row["project"] for row in rows) == ["language", "vision", "vision"]
        assert {row["user"] for row in rows} - {""} == {
            OWNERS[one] for one in within("waiting", caller)
        }, caller
        named = {OWNERS[one] for one in within("notebook names", caller)}
        assert {row["name"].partition("-")[0] for row in rows} - {""} == named, caller
        assert sum(row["mine"] for row in rows) == (1 if caller in ("person", "server") else 0)


@story
async def test_everybody_is_counted_on_a_node_and_named_to_whom_the_table_says(town: Town):
    for caller in PEOPLE:
        answer = await town.ask(caller, "GET", "/api/v1/nodes")
        assert b"secret" not in answer.body
        device = json.loads(answer.body)["nodes"][0]["devices"][0]
        expected = [
            f"k-{user}1"
            if whose in within("nodes", caller)
            else f"another user in project {PROJECTS[user]}"
            for whose, user in OWNERS.items()
        ]
        assert sorted(device["kernels"]) == sorted(expected), caller


@story
async def test_queues_projects_and_pools_are_everybodys(town: Town):
    for path in ("queues", "projects", "pools", "history/queues"):
        answers = {
            (await town.ask(caller, "GET", f"/api/v1/{path}")).body.replace(b"true", b"false")
            for caller in PEOPLE
        }
        assert len(answers) == 1, path
    rows = (await town.read("person", "/api/v1/projects"))["projects"]
    assert {row["name"]: row["member"] for row in rows} == {"vision": True, "language": False}


@story
async def test_the_stream_tells_each_what_the_table_says(town: Town):
    """The state, and then the frames of a change of everybody's, which come in the order in which
    they were made.
    """
    service = town.running.server.service
    for caller in PEOPLE:
        client = town.running.client(str(town.tokens[caller]))
        frames = client.changes()
        state = await anext(frames)
        seen, named = (
            {OWNERS[one] for one in within("stream", caller)},
            {OWNERS[one] for one in within("notebook names", caller)},
        )
        assert isinstance(state, m.SchedulerState)
        assert {w.user for w in state.workloads} == seen
        assert {w.user for w in state.workloads if w.name} == named
        for user in PROJECTS:
            service.unit_of_work.publish_change(service.unit_of_work.records[f"{user}1"])
            event = m.Event(time=m.stamp(0), kind="notice", message=f"for {user}-secret-1.ipynb")
            service.unit_of_work._publish_event(service.unit_of_work.records[f"{user}1"], event)
        service.unit_of_work.status_changed()
        told: list[object] = []
        async for frame in frames:
            if isinstance(frame, m.ServiceChanged):
                break
            told.append(frame)
        changed = {
            frame.workload.user: frame.workload
            for frame in told
            if isinstance(frame, m.WorkloadChanged)
        }
        assert set(changed) == seen, caller
        assert {user for user, w in changed.items() if w.name and w.pods[0].lease.name} == named
        assert {
            frame.id.rstrip("1") for frame in told if isinstance(frame, m.WorkloadEvent)
        } == named, caller
        await frames.aclose()


@story
async def test_who_hears_of_whom_changes_with_the_policy(town: Town):
    """Also for those who listen already."""
    service = town.running.server.service
    listeners = {
        "alice": town.running.of("alice").changes(),
        "box2": town.running.of("box2", "server").changes(),
    }
    for stream in listeners.values():
        assert isinstance(await anext(stream), m.SchedulerState)

    async def hear() -> dict[str, set[str]]:
        """Who hears of a change of each person's."""
        for user in PROJECTS:
            service.unit_of_work.publish_change(service.unit_of_work.records[f"{user}1"])
        service.unit_of_work.status_changed()
        last = service.unit_of_work.revision
        heard: dict[str, set[str]] = {}
        for name, stream in listeners.items():
            heard[name] = set()
            while not (
                isinstance(frame := await anext(stream), m.ServiceChanged)
                and frame.revision == last
            ):
                if isinstance(frame, m.WorkloadChanged) and frame.workload.id.endswith("1"):
                    heard[name].add(frame.workload.user)
        return heard

    everybody = set(PROJECTS)
    assert await hear() == {"alice": {"alice", "ann"}, "box2": everybody}
    service.use_policy(parse_policy(POLICY.replace("[alice, ann]", "[ann]")))
    assert await hear() == {"alice": {"alice"}, "box2": everybody}
    service.use_policy(parse_policy(POLICY.replace("[bob]", "[alice]")))
    assert await hear() == {"alice": {"alice", "ann", "bob"}, "box2": everybody}
    for stream in listeners.values():
        await stream.aclose()


@story
async def test_an_agent_speaks_for_its_node_and_nobody_else(town: Town):
    for caller, node, may in (
        ("agent", "n1", True),
        ("agent", "n2", False),
        ("admin", "n2", True),
        ("listed admin", "n3", True),
    ):
        client = town.running.client(str(town.tokens[caller]))
        if may:
            agent = FakeAgent(node)
            async with agent.linked(client):
                # asked within this turn
                await agent.until(lambda: agent.plan is not None)  # noqa: B023
            continue
        async with client.agent_link() as link:
            await link.send(m.AgentHello(version="1", node=FakeAgent(node).node))
            with pytest.raises(Unavailable, match="is not valid for node"):
                async for _ in link:
                    pass


@story
async def test_everybody_may_ask_who_they_are(town: Town):
    said = {
        caller: await town.read(caller, "/api/v1/whoami") for caller in COLUMN if caller != "nobody"
    }
    short = {
        caller: (who["user"], who["scope"], who["admin"], who["users"], who["projects"])
        for caller, who in said.items()
    }
    admin = said["admin"]["user"]
    assert short == {
        "person": ("alice", "person", False, [], ["vision"]),
        "server": ("box", "server", False, ["alice"], ["vision"]),
        "agent": ("n1", "agent", False, [], []),
        "admin": (admin, "admin", True, ["*"], ["vision", "language"]),
        "listed admin": ("lisa", "person", True, [], ["vision", "language"]),
        "everybody's server": ("hub", "server", False, ["*"], ["vision", "language"]),
    }
    assert {who["source"] for who in said.values()} == {"token"}


@story
async def test_workloads_of_a_project_that_is_not_there_is_a_mistake(town: Town):
    answer = await town.ask("person", "GET", "/api/v1/workloads?project=nowhere")
    assert (answer.code, json.loads(answer.body)["error"]["field"]) == (400, "project")
    assert (await town.read("person", "/api/v1/workloads?project=language"))["workloads"] == []
