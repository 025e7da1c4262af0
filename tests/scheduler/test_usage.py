"""GPU-hours by project, person and notebook, and the audit log: what is added up, who sees it, and
that nothing is lost or made up.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_gpushare import messages as m
from jupyter_gpushare.core.model.errors import InvalidInput
from jupyter_gpushare.scheduler.auth.identity import Identity
from jupyter_gpushare.scheduler.policy.policy_file import parse_policy
from jupyter_gpushare.scheduler.service.service import SchedulerService
from jupyter_gpushare.scheduler.state.audit import entries
from jupyter_gpushare.scheduler.state.usage import HOUR_MS
from jupyter_gpushare.scheduler.store.store import Cutoffs, Store
from node_agent.policy.lending import lent
from tests.cli.command import gpushare
from tests.scheduler.agents import MIB, node
from tests.scheduler.running_server import open_server

POLICY = """\
projects:
  - {name: vision, members: [alice, ann], pools: {default: {gpu: {quota: 2}}}}
  - {name: language, members: [bob], pools: {default: {gpu: {quota: 2}}}}
"""
ADMIN = Identity("root", (), "admin")
START = 1_000 * HOUR_MS


class Silent:
    def publish(self, frame: m.SchedulerFrame, project: str | None, user: str | None) -> None:
        pass


class Lab:
    """A service with one node of two GPUs of 80 GiB, and hands on its clock."""

    def __init__(self, url: str) -> None:
        self.time = START
        self.store = Store(url)
        self.service = SchedulerService(
            self.store, parse_policy(POLICY), Silent(), clock=lambda: self.time
        )
        self.service.agent_hello(m.AgentHello(version="1", node=node()), lambda _order: None)

    def kernel(self, id_: str, project: str, user: str, gpu: float) -> str:
        """Its lease."""
        pods = [m.PodRequest(name="kernel", gpu=gpu)]
        self.service.submit(
            ADMIN,
            m.WorkloadRequest(id=id_, name=f"{id_}.ipynb", project=project, user=user, pods=pods),
        )
        self.service.run_cycle()
        return self.service.unit_of_work.records[id_].leases["kernel"].id

    def report(
        self, lease: str, held: int, busy: int, borrowed: float = 0, lent: float = 0
    ) -> None:
        row = m.LeaseUsage(
            lease=lease,
            held_ms=held,
            busy_ms=busy,
            used_mib_ms=0,
            borrowed_mib_ms=round(borrowed * MIB),
            lent_mib_ms=round(lent * MIB),
        )
        self.service.agent_report("n0", m.UsageReport(since_ms=0, rows=[row]))

    def by(self, kind: str, who: Identity = ADMIN, **period: str) -> dict[str, tuple[float, ...]]:
        rows = self.service.queries.usage(who, kind, **period).usage
        return {
            "/".join(filter(None, (r.project, r.user, r.notebook))): (
                r.held,
                r.used,
                r.idle,
                r.borrowed,
                r.lent,
            )
            for r in rows
        }


@pytest.fixture
def lab(database) -> Iterator[Lab]:
    lab = Lab(database.url)
    yield lab
    lab.store.close()


def test_hours_are_added_up_per_project_person_and_notebook(lab: Lab):
    half, whole = lab.kernel("a", "vision", "alice", 0.5), lab.kernel("b", "language", "bob", 1)
    third = lab.kernel("c", "vision", "ann", 0.25)
    lab.report(half, 2 * HOUR_MS, HOUR_MS, borrowed=HOUR_MS / 4, lent=HOUR_MS / 8)
    lab.report(whole, HOUR_MS, HOUR_MS // 4)
    lab.report(third, 4 * HOUR_MS, 0)
    assert lab.by("project") == {
        "vision": (2.0, 0.5, 1.5, 0.25, 0.125),
        "language": (1.0, 0.25, 0.75, 0.0, 0.0),
    }
    assert lab.by("person") == {
        "vision/alice": (1.0, 0.5, 0.5, 0.25, 0.125),
        "vision/ann": (1.0, 0.0, 1.0, 0.0, 0.0),
        "language/bob": (1.0, 0.25, 0.75, 0.0, 0.0),
    }
    assert set(lab.by("notebook")) == {
        "vision/alice/a.ipynb",
        "vision/ann/c.ipynb",
        "language/bob/b.ipynb",
    }


def test_a_person_sees_their_projects_and_only_their_own_notebooks(lab: Lab):
    for lease in (
        lab.kernel("a", "vision", "alice", 1),
        lab.kernel("b", "language", "bob", 0.5),
        lab.kernel("c", "vision", "ann", 0.5),
    ):
        lab.report(lease, HOUR_MS, 0)
    alice = Identity("alice")
    assert set(lab.by("project", alice)) == {"vision"}
    assert set(lab.by("person", alice)) == {"vision/alice", "vision/ann"}
    assert set(lab.by("notebook", alice)) == {"vision/alice/a.ipynb"}


def test_a_period_takes_the_hours_that_begin_in_it(lab: Lab):
    lease = lab.kernel("a", "vision", "alice", 1)
    for hour in range(4):
        lab.time = START + hour * HOUR_MS + 5
        lab.report(lease, HOUR_MS, 0)
        lab.service.reports.write_usage()
    lab.time = START + 4 * HOUR_MS - 1
    assert lab.by("project")["vision"][0] == 4
    assert (
        lab.by("project", since="2h")["vision"][0] == 3
    )  # the hour that had begun two hours ago counts as well
    assert lab.by("project", until="2h")["vision"][0] == 2
    assert (
        lab.by("project", since="1970-02-11T17:00:00+00:00", until="1970-02-11T18:00:00+00:00")[
            "vision"
        ][0]
        == 1
    )
    for wrong in ({"since": "yesterday"}, {"since": "1h", "until": "2h"}, {"until": "soon"}):
        with pytest.raises(InvalidInput):
            lab.by("project", **wrong)
    with pytest.raises(InvalidInput, match="by must be"):
        lab.by("colour")


def test_reports_survive_a_restart_and_a_store_that_was_away(database):
    first = Lab(database.url)
    lease = first.kernel("a", "vision", "alice", 1)
    first.report(lease, HOUR_MS, HOUR_MS)
    first.service.tick(first.time)
    first.store.close()
    again = Lab(database.url)
    again.report(lease, HOUR_MS, 0)
    assert again.by("project") == {"vision": (2.0, 1.0, 1.0, 0.0, 0.0)}
    again.store.close()


def test_what_admins_do_and_who_is_evicted_is_in_the_audit_log(lab: Lab):
    lab.kernel("a", "vision", "alice", 2)
    lab.service.end(Identity("alice"), "a")
    lab.kernel("b", "vision", "alice", 2)
    lab.service.end(ADMIN, "b")
    lab.kernel("c", "vision", "alice", 2)
    lab.service.submit(
        ADMIN, m.WorkloadRequest(id="d", project="language", pods=[m.PodRequest(gpu=1)])
    )
    lab.service.run_cycle()
    lab.service.cordons.cordon("root", "n0")
    found = [(row.actor, row.action, row.object) for row in lab.service.queries.audit().audit]
    assert ("root", "end", "workload b of alice in vision") in found
    assert not [
        one for one in found if "workload a " in one[2]
    ]  # ending one's own workload is not audited
    assert ("root", "cordon", "node n0") in found
    assert {row.action for row in lab.service.queries.audit(action="cordon").audit} == {"cordon"}


def test_an_eviction_is_audited_with_its_reason(lab: Lab):
    policy = "projects: [{name: vision, pools: {default: {gpu: {quota: 0}}}}, "
    policy += "{name: language, pools: {default: {gpu: {quota: 2}}}}]\n"
    lab.service.use_policy(parse_policy(policy))
    lab.kernel("a", "vision", "alice", 2)
    lab.service.submit(
        ADMIN, m.WorkloadRequest(id="b", project="language", pods=[m.PodRequest(gpu=2)])
    )
    lab.service.run_cycle()
    (row,) = lab.service.queries.audit(action="evict").audit
    assert (row.actor, row.object) == ("scheduler", "workload a of alice in vision")
    assert row.detail.startswith("reclaim for b: ")


def test_both_are_tables_and_the_log_is_for_admins(tmp_path: Path):
    async def story() -> None:
        async with open_server(tmp_path) as running:
            made = await running.raw(
                "POST",
                "/api/v1/tokens",
                b'{"scope": "person", "name": "alice"}',
                running.admin_token,
            )
            assert made.code == 200
            csv = await running.raw(
                "GET",
                "/api/v1/audit?format=csv&columns=actor,action,object",
                token=running.admin_token,
            )
            assert csv.body.decode().splitlines()[0] == "actor,action,object"
            assert "create token" in csv.body.decode()
            assert (
                await running.raw("GET", "/api/v1/audit", token=running.token("alice"))
            ).code == 403
            said = await running.raw(
                "GET", "/api/v1/usage?format=csv&by=person", token=running.token("alice")
            )
            assert said.body.decode().startswith(
                "project,user,notebook,held,used,idle,borrowed,lent"
            )
            wrong = await running.raw(
                "GET", "/api/v1/usage?by=colour", token=running.token("alice")
            )
            assert (wrong.code, b'"field":"by"' in wrong.body.replace(b" ", b"")) == (400, True)

    asyncio.run(story())


def test_tokens_are_audited_wherever_they_are_made_and_never_with_their_secret(tmp_path: Path):
    made = gpushare("token", "create", "box", "--scope", "agent", "--json", "--state-dir", tmp_path)
    body = json.loads(made.stdout)
    assert gpushare("token", "revoke", body["id"], "--state-dir", tmp_path).status == 0
    assert (
        gpushare("token", "revoke", body["id"], "--state-dir", tmp_path).status == 0
    )  # a second time changes nothing
    store = Store(f"sqlite:///{tmp_path}/scheduler.sqlite")
    found = entries(store)
    store.close()
    assert [(entry.action, entry.object) for entry in found] == [
        ("create token", f"token {body['id']}"),
        ("revoke token", f"token {body['id']}"),
    ]
    assert all(entry.actor.endswith(" (at the database)") for entry in found)
    assert body["token"] not in str(found)


AMOUNTS = st.dictionaries(st.sampled_from("abcdef"), st.integers(0, 80_000))


@given(held=AMOUNTS, shares=AMOUNTS)
def test_no_more_is_lent_than_is_borrowed_and_nobody_lends_more_than_they_leave(
    held: dict[str, int], shares: dict[str, int]
):
    found = lent(held, shares)
    borrowed = sum(max(0, mib - shares.get(name, 0)) for name, mib in held.items())
    assert sum(found.values()) <= borrowed
    assert all(0 <= mib <= shares[name] - held.get(name, 0) for name, mib in found.items())
    left = sum(max(0, share - held.get(name, 0)) for name, share in shares.items())
    assert sum(found.values()) >= min(borrowed, left) - len(shares)


def test_hours_and_the_log_are_forgotten_with_the_rest(lab: Lab):
    lab.report(lab.kernel("a", "vision", "alice", 1), HOUR_MS, 0)
    lab.service.end(ADMIN, "a")
    lab.service.reports.write_usage()
    before = Cutoffs(workloads=0, events=lab.time, usage=lab.time)
    lab.store.prune(before)
    lab.time += HOUR_MS
    assert (lab.by("project"), len(lab.service.queries.audit().audit)) == (
        {"vision": (1.0, 0.0, 1.0, 0.0, 0.0)},
        1,
    )
    lab.store.prune(Cutoffs(workloads=0, events=lab.time, usage=lab.time))
    assert (lab.by("project"), lab.service.queries.audit().audit) == ({}, [])
