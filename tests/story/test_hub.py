"""Two users in two groups share simulated GPUs behind a real JupyterHub; tests what each can see
and do of the other.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from functools import partial

import pytest

from tests.story.front_end import Notebook, Rest, RestError, eventually
from tests.story.hub_process import PROXY, HubWorld, Person

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HubWorld]:
    assert PROXY.exists(), "configurable-http-proxy comes with `make venv`"
    made = HubWorld(tmp_path_factory.mktemp("hub"))
    try:
        yield made.start()
    finally:
        made.stop()
        sys.stdout.write(made.logs())  # shown when a test fails


@pytest.fixture(scope="module")
def alice(world: HubWorld) -> Person:
    return world.people["alice"]


@pytest.fixture(scope="module")
def bob(world: HubWorld) -> Person:
    return world.people["bob"]


@pytest.fixture(scope="module")
def hers(alice: Person, bob: Person) -> Notebook:
    notebook = alice.notebook("half", "alice-secret.ipynb")
    notebook.until("attached")
    return notebook


@pytest.fixture(scope="module")
def his(bob: Person, hers: Notebook) -> Notebook:
    notebook = bob.notebook("half", "bob-secret.ipynb")
    notebook.until("attached")
    return notebook


def test_users_are_authenticated_by_the_hub(alice: Person, bob: Person):
    for person, project in ((alice, "vision"), (bob, "language")):
        who = person.scheduler.rest("GET", "whoami")
        assert (who["user"], who["source"], who["admin"], who["projects"]) == (
            person.name,
            "hub",
            False,
            [project],
        )
        assert who["groups"] == [project]


def test_both_use_the_same_gpu(hers: Notebook, his: Notebook):
    """His project is defined only in the properties of his group."""
    assert (hers.view["project"], his.view["project"]) == ("vision", "language")
    for notebook in (hers, his):
        assert notebook.ok(
            "from jupyter_gpushare import simgpu; b = simgpu.alloc('30GiB'); simgpu.device_uuid()"
        )
    assert hers.view["gpu_uuid"] == his.view["gpu_uuid"]
    assert hers.view["memory_mib"]["used"] == his.view["memory_mib"]["used"] == 30 * 1024


def test_users_see_only_their_own_notebooks(
    alice: Person, bob: Person, hers: Notebook, his: Notebook
):
    for person, own in ((alice, hers), (bob, his)):
        assert [kernel["kernel_id"] for kernel in person.status()["kernels"]] == [own.kernel_id]


@pytest.mark.parametrize(
    ("verb", "path", "body"),
    [
        ("GET", "gpushare/api/kernels/{id}", None),
        ("POST", "gpushare/api/kernels/{id}", {"gpu": 0.1}),
        ("DELETE", "gpushare/api/kernels/{id}", None),
        ("POST", "gpushare/api/kernels/{id}/actions/suspend", {}),
        ("POST", "gpushare/api/kernels/{id}/actions/pin", {}),
        ("GET", "gpushare/api/kernels/{id}/history", None),
    ],
)
def test_kernels_of_others_do_not_exist(
    alice: Person, bob: Person, hers: Notebook, his: Notebook, verb, path, body
):
    """One's own server does not know it, and the Hub refuses access to the other server."""
    for person, theirs, other in ((alice, his, bob), (bob, hers, alice)):
        assert person.refused(verb, path.format(id=theirs.kernel_id), body)[0] == 404
        intruder = Person(person.port, person.token, other.name)
        assert intruder.refused(verb, path.format(id=theirs.kernel_id), body)[0] == 403
        assert theirs.view["state"] == "attached"


def test_the_scheduler_lists_only_own_workloads(
    alice: Person, bob: Person, hers: Notebook, his: Notebook
):
    for person, own, other in ((alice, hers, his), (bob, his, hers)):
        [workload] = person.scheduler.rest("GET", "workloads")["workloads"]
        assert (workload["user"], workload["kernel_id"], workload["name"]) == (
            person.name,
            own.kernel_id,
            own.path,
        )
        theirs = other.view["workload"]
        for verb in ("GET", "DELETE"):
            assert person.refused(verb, f"workloads/{theirs}", scheduler=True) == (
                404,
                {"code": "not-found", "message": f"unknown workload {theirs!r}", "field": "id"},
            )
        [device] = person.scheduler.rest("GET", "nodes")["nodes"][0]["devices"]
        assert sorted(device["kernels"]) == sorted(
            [own.kernel_id, f"another user in project {other.view['project']}"]
        )
        everything = " ".join(
            str(person.scheduler.rest("GET", path))
            for path in ("workloads", "nodes", "waiting", "queues", "evictions")
        )
        assert other.path not in everything
        assert other.kernel_id not in everything


def test_requests_for_another_user_or_project_are_refused(
    alice: Person, bob: Person, hers: Notebook, his: Notebook
):
    for person, other, project in ((alice, bob, "language"), (bob, alice, "vision")):
        body = {"id": f"{person.name}-tries", "pods": [{"gpu": 0.1}]}
        for more, field in (({"user": other.name}, "user"), ({"project": project}, "project")):
            for path in ("workloads", "what-if"):
                status, error = person.refused("POST", path, {**body, **more}, scheduler=True)
                assert (status, error["field"]) == (403, field)
        status, error = person.refused(
            "POST", "gpushare/api/what-if", {"gpu": 0.1, "project": project}
        )
        assert (status, error["field"]) == (403, "project")
        for verb, path in (
            ("GET", "tokens"),
            ("POST", "tokens"),
            ("GET", "snapshot"),
            ("DELETE", "tokens/x"),
        ):
            assert person.refused(verb, path, {}, scheduler=True)[0] == 403


def test_the_queue_is_visible_without_names_of_others(
    alice: Person, bob: Person, hers: Notebook, his: Notebook
):
    for person in (alice, bob):
        body = {
            "id": f"{person.name}-waits",
            "name": f"{person.name}-hidden.ipynb",
            "pods": [{"gpu": 1}],
        }
        person.scheduler.rest("POST", "workloads", body)
    for person, other in ((alice, bob), (bob, alice)):
        waiting = partial(person.scheduler.rest, "GET", "waiting")
        rows = eventually(
            lambda: len(rows := waiting()["waiting"]) == 2 and rows,  # noqa: B023
            "both are pending",
        )
        assert sorted(row["position"] for row in rows) == [1, 2]
        [mine], [theirs] = (
            [row for row in rows if row["mine"]],
            [row for row in rows if not row["mine"]],
        )
        assert (mine["user"], mine["name"]) == (person.name, f"{person.name}-hidden.ipynb")
        assert (theirs["user"], theirs["name"], theirs["workload"]) == ("", "", "")
        assert theirs["project"] == {"alice": "vision", "bob": "language"}[other.name]
    for person in (alice, bob):
        person.scheduler.rest("DELETE", f"workloads/{person.name}-waits")


def test_an_admin_of_the_hub_sees_everything(world: HubWorld, hers: Notebook, his: Notebook):
    lisa = world.person("lisa")
    who = lisa.scheduler.rest("GET", "whoami")
    assert (who["user"], who["admin"], who["source"]) == ("lisa", True, "hub")
    listed = {w["user"]: w["name"] for w in lisa.scheduler.rest("GET", "workloads")["workloads"]}
    assert listed == {"alice": hers.path, "bob": his.path}


def test_a_user_without_a_group_is_refused(world: HubWorld):
    world.hub.rest("POST", "users/mallory")
    status, error = world.person("mallory").refused("GET", "workloads", scheduler=True)
    assert status == 403
    assert "access:services!service=gpushare" in error["message"]


def test_a_separate_scheduler_authenticates_by_the_hub_too(world: HubWorld, alice: Person):
    """It also reads the projects in groups."""
    beside = Rest(int(world.start_beside().rpartition(":")[2]), alice.token, "/api/v1/")
    who = beside.rest("GET", "whoami")
    assert (who["user"], who["groups"], who["source"]) == ("alice", ["vision"], "hub")
    problems = eventually(
        lambda: beside.rest("GET", "status")["policy_problems"], "the groups were read"
    )
    assert problems == [
        "JupyterHub group language: gpushare: department: there is no department 'research'"
    ]
    made_up = Rest(beside.port, "made-up", "/api/v1/")
    with pytest.raises(RestError) as refused:
        made_up.rest("GET", "whoami")
    assert refused.value.status == 401


def test_kernels_have_no_token_of_the_hub(world: HubWorld, hers: Notebook, his: Notebook):
    for notebook in (hers, his):
        shown = notebook.ok(
            "import os; print(sorted(name for name in os.environ if 'TOKEN' in name))"
        )
        assert "JUPYTERHUB_API_TOKEN" not in shown


def test_tokens_are_in_no_log_and_no_process_list(
    world: HubWorld, alice: Person, hers: Notebook, his: Notebook
):
    secrets = [
        alice.token,
        world.hub.token,
        (world.state / "admin.token").read_text().strip(),
        (world.folder / "agent.token").read_text().strip(),
    ]
    text = world.commands() + "".join(
        path.read_text(errors="replace") for path in world.folder.glob("*.log")
    )
    assert "jupyter_gpushare.cli scheduler" in text
    assert not [secret for secret in secrets if secret in text]


def test_a_released_share_is_available_to_the_other(
    alice: Person, bob: Person, hers: Notebook, his: Notebook
):
    his.shut_down()
    eventually(lambda: alice.allocated() == 0.5, "his share is released")
    alice.rest("POST", f"gpushare/api/kernels/{hers.kernel_id}", {"gpu": 1})

    def has_all() -> bool:
        view = hers.view
        return (view["state"], view["memory_mib"]["guaranteed"]) == ("attached", 80 * 1024)

    eventually(has_all, "she has the whole GPU")
