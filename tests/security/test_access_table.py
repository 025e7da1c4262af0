"""The access table over the unix socket: every route by real unix users, and every object that is
their own, a colleague's or an outsider's. `tests/scheduler/test_permissions.py` has it over HTTP.
"""

from __future__ import annotations

import pwd

import pytest

from jupyter_gpushare.routes import ROUTES
from jupyter_gpushare.scheduler.auth.permissions import Caller, opens, reach
from tests.scheduler.permission_town import WITHIN, address
from tests.security.machine import PROJECTS, Answer, Machine, as_root

pytestmark = [as_root, pytest.mark.slow, pytest.mark.timeout(180)]

CALLERS: dict[str | None, Caller] = {"alice": "person", "lisa": "admin", None: "admin"}
"""Unix user -> column of the table. lisa is listed under `admins` in the policy, None is root."""
OWNERS = {"own": "alice", "colleague": "ann", "outsider": "bob"}
SECRET = "secret"


class Town:
    """A machine where each user has a running and a pending workload."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        for user in OWNERS.values():
            for kind, gpu in (("running", 0.25), ("pending", 2)):
                answer = self.submit(user, self.id(user, kind), gpu)
                assert answer.status == 200, answer

    @staticmethod
    def id(user: str, kind: str) -> str:
        return f"{user}-{kind}"

    def submit(self, user: str, id_: str, gpu: float = 0.05) -> Answer:
        return self.machine.submit(
            None,
            id=id_,
            name=f"{user}-{SECRET}.ipynb",
            user=self.machine.name(user),
            project=PROJECTS[user],
            pods=[{"gpu": gpu} for _ in range(2 if gpu == 2 else 1)],
            queue_anyway=True,
        )

    def read(self, caller: str | None, path: str) -> dict:
        answer = self.machine.call(caller, "GET", path)
        assert answer.status == 200, (caller, path, answer)
        return answer.json()


@pytest.fixture(scope="module")
def town(machine: Machine) -> Town:
    return Town(machine)


def within(thing: str, caller: str | None) -> tuple[str, ...]:
    """Whose objects this caller reaches."""
    return WITHIN[reach(thing, CALLERS[caller])]


def test_every_route_opens_as_in_the_table(town: Town):
    for route in ROUTES:
        for caller, column in CALLERS.items():
            verb = "GET" if route.verb == "WS" else route.verb
            answer = town.machine.call(caller, verb, address(route), None)
            assert (answer.status == 403) is not opens(route, column), (route.name, caller, answer)
            # without its key a secret address is unknown, to everybody
            assert answer.status != 401 or route.scope == "secret"


def test_a_user_without_an_account_is_a_person_without_projects(town: Town):
    nobody = pwd.struct_passwd(("", "x", 424_242, 424_242, "", "/", "/bin/sh"))
    town.machine.users["unknown"] = nobody
    try:
        who = town.read("unknown", "/api/v1/whoami")
        assert (who["user"], who["admin"], who["projects"]) == ("uid424242", False, [])
        assert town.read("unknown", "/api/v1/workloads")["workloads"] == []
        assert town.machine.submit("unknown").status == 403
        for route in ROUTES:
            if not opens(route, "person"):
                verb = "GET" if route.verb == "WS" else route.verb
                assert town.machine.call("unknown", verb, address(route)).status == 403
    finally:
        del town.machine.users["unknown"]


def test_a_header_does_not_change_who_the_caller_is(town: Town):
    """A token counts on the socket as well; a wrong one is refused, other headers are ignored."""
    machine = town.machine
    for name in ("X-Forwarded-User", "X-Remote-User", "X-Forwarded-For", "Cookie"):
        connection = machine.connection("bob")
        connection.request("GET", "/api/v1/whoami", headers={name: machine.name("lisa")})
        assert machine.name("bob").encode() in connection.getresponse().read()
        connection.close()
    connection = machine.connection(None)
    connection.request("GET", "/api/v1/whoami", headers={"Authorization": "Bearer wrong"})
    assert connection.getresponse().status == 401
    connection.close()


@pytest.mark.parametrize("caller", CALLERS, ids=str)
def test_workloads_are_visible_as_in_the_table(town: Town, caller: str | None):
    listed = {one["id"]: one for one in town.read(caller, "/api/v1/workloads")["workloads"]}
    expected = set()
    for whose in within("workloads", caller):
        for kind in ("running", "pending"):
            expected.add(town.id(OWNERS[whose], kind))
    assert set(listed) == expected
    for whose, user in OWNERS.items():
        answer = town.machine.call(caller, "GET", f"/api/v1/workloads/{town.id(user, 'running')}")
        assert answer.status == (200 if whose in within("workload", caller) else 404)
        is_named = whose in within("notebook names", caller)
        assert (SECRET.encode() in answer.body) is is_named, (caller, whose)


@pytest.mark.parametrize("caller", CALLERS, ids=str)
def test_workloads_change_as_in_the_table(town: Town, caller: str | None):
    for whose, user in OWNERS.items():
        id_ = f"{user}-changed-by-{caller}"
        assert town.submit(user, id_).status == 200
        path = f"/api/v1/workloads/{id_}"
        calls = (
            ("logs", "GET", f"{path}/logs", None),
            ("rename", "PATCH", path, {"name": "renamed"}),
            ("end", "DELETE", path, None),
        )
        for thing, verb, address_, body in calls:
            answer = town.machine.call(caller, verb, address_, body)
            is_allowed = whose in within(thing, caller)
            is_visible = whose in within("workload", caller)
            expected = 200 if is_allowed else 403 if is_visible else 404
            assert answer.status == expected, (thing, caller, whose, answer)
        assert (town.machine.state(id_) == "ended") is (whose in within("end", caller))
        town.machine.end(id_)


@pytest.mark.parametrize("caller", CALLERS, ids=str)
@pytest.mark.parametrize("thing", ["submit", "what_if"])
def test_requests_are_accepted_as_in_the_table(town: Town, caller: str | None, thing: str):
    path = next(route.path for route in ROUTES if route.name == thing)
    for whose, user in OWNERS.items():
        id_ = f"{thing}-{caller}-{user}"
        body = {
            "id": id_,
            "user": town.machine.name(user),
            "project": PROJECTS[user],
            "pods": [{"gpu": 0.05}],
        }
        answer = town.machine.call(caller, "POST", path, body)
        is_allowed = whose in within(thing, caller)
        assert answer.status == (200 if is_allowed else 403), (caller, whose, answer)
        assert is_allowed or answer.error()["field"] == "user"
        town.machine.call(None, "DELETE", f"/api/v1/workloads/{id_}")


@pytest.mark.parametrize("caller", CALLERS, ids=str)
def test_names_in_tables_are_shown_as_in_the_table(town: Town, caller: str | None):
    rows = town.read(caller, "/api/v1/waiting")["waiting"]
    assert len(rows) == len(OWNERS)
    machine = town.machine
    assert {row["user"] for row in rows} - {""} == {
        machine.name(OWNERS[whose]) for whose in within("waiting", caller)
    }
    named = within("notebook names", caller)
    for path in ("waiting", "nodes", "evictions", "usage", "queues", "projects", "pools"):
        for query in ("", "?format=csv"):
            text = machine.call(caller, "GET", f"/api/v1/{path}{query}").body.decode()
            for whose, user in OWNERS.items():
                assert f"{user}-{SECRET}" not in text or whose in named, (path, caller, whose)


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: route.name)
def test_on_the_network_no_route_opens_without_a_token(town: Town, route):
    verb = "GET" if route.verb == "WS" else route.verb
    for token in (None, "wrong", "gpushare_" + "x" * 40, "\x80"):
        answer = town.machine.call_http(token, verb, address(route))
        if route.scope != "open":
            assert answer.status == 401, (token, answer)
        elif token is None:
            assert answer.status not in (401, 403), answer
