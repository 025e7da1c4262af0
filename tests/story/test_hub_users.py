"""A real JupyterHub that starts servers as unix users, and one agent, run by root, for all of them.

Two groups define their projects and quotas. test_hub tests the isolation by Hub and scheduler; this
file tests the isolation by the operating system and the agent, and quotas between the two users.
"""

from __future__ import annotations

import os
import pwd
import secrets
import site
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.story.front_end import Notebook, eventually
from tests.story.hub_process import HubWorld, Person
from tests.story.test_users import PYTHON, ROOT, needs, tried
from tests.workers import add_unix_user, remove_unix_user

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300), needs]
POLICY = """\
departments: [{name: research, pools: {default: {gpu: {quota: 1}}}}]
defaults: {notice: 5s}
"""
HALF = {"department": "research", "gpu": {"quota": 0.5}}
CONFIG = """
c.JupyterHub.spawner_class = "jupyterhub.spawner.LocalProcessSpawner"
c.Spawner.args = []
"""


class UnixWorld(HubWorld):
    """As in docs/how-to/jupyterhub.md and services.md, with unix users created for this run."""

    policy = POLICY
    more_config = CONFIG

    def __init__(self, folder: Path) -> None:
        self.public = folder / "public"
        super().__init__(
            folder, tuple(f"gs-{who}-{secrets.token_hex(2)}" for who in ("alice", "bob"))
        )

    @property
    def groups(self) -> dict[str, object]:
        return {
            group: {"users": [name], "properties": {"gpushare": HALF}}
            for group, name in zip(("vision", "language"), self.names, strict=True)
        }

    @property
    def server_config(self) -> dict[str, str]:
        return {
            "scheduler_url": f"http://127.0.0.1:{self.port}/services/gpushare",
            "agent_socket": f"{self.public}/agent.sock",
        }

    @property
    def agent_options(self) -> list[str]:
        return [
            "--users",
            "all",
            "--state-dir",
            f"{self.folder}/agent",
            "--socket",
            f"{self.public}/agent.sock",
        ]

    def singleuser(self) -> str:
        return str(PYTHON)

    @property
    def environment(self) -> dict[str, str]:
        """Shared configuration and kernelspecs; files are written to the users' homes."""
        f, packages = self.folder, os.pathsep.join([str(ROOT), *site.getsitepackages()])
        mine = {
            "JUPYTER_CONFIG_PATH": f / "config",
            "JUPYTER_PATH": f / "data",
            "STORY_WORLD": f,
            "PATH": os.environ["PATH"],
            "PYTHONPATH": packages,
        }
        return {name: str(value) for name, value in mine.items()} | {
            "GPUSHARE_STATE": str(self.state)
        }

    def start(self) -> UnixWorld:
        for name in self.names:
            add_unix_user(name, "--home-dir", f"{self.folder}/homes/{name}", "--create-home")
        super().start()
        return self

    def stop(self) -> None:
        super().stop()
        for name in self.names:
            remove_unix_user(name)


@pytest.fixture(scope="module")
def world() -> Iterator[UnixWorld]:
    # Directories of pytest are accessible to their owner only.
    with tempfile.TemporaryDirectory(prefix="gpushare-hub-") as folder:
        Path(folder).chmod(0o755)
        made = UnixWorld(Path(folder))
        try:
            yield made.start()
        finally:
            made.stop()
            sys.stdout.write(made.logs())  # shown when a test fails


@pytest.fixture(scope="module")
def people(world: UnixWorld) -> list[Person]:
    return [world.people[name] for name in world.names]


@pytest.fixture(scope="module")
def notebooks(people: list[Person]) -> list[Notebook]:
    made = [person.notebook("half", f"{person.name}.ipynb") for person in people]
    for notebook in made:
        notebook.until("attached")
    return made


def test_each_works_as_themselves_in_the_project_of_their_group(
    people: list[Person], notebooks: list[Notebook]
):
    for person, notebook, project in zip(people, notebooks, ("vision", "language"), strict=True):
        assert notebook.view["project"] == project
        shown = notebook.ok(
            "import os; from jupyter_gpushare import simgpu; b = simgpu.alloc('30GiB'); "
            "print(os.getuid())"
        )
        assert shown.strip() == str(pwd.getpwnam(person.name).pw_uid)
    assert len({notebook.view["gpu_uuid"] for notebook in notebooks}) == 1


def test_the_properties_of_a_group_are_its_quota(people: list[Person]):
    for person in people:
        quotas = {
            row["queue"]: row["quota"]
            for row in person.rest("GET", "gpushare/api/queues")["queues"]
            if row["resource"] == "gpu"
        }
        assert (quotas["vision"], quotas["language"]) == (0.5, 0.5)


def test_nothing_of_the_others_can_be_read_or_ended(world: UnixWorld, notebooks: list[Notebook]):
    for own, other in (notebooks, reversed(notebooks)):
        for path in (
            f"{world.public}/tokens/{other.kernel_id}",
            f"/proc/{other.pid}/environ",
            f"{world.state}/admin.token",
            f"{world.folder}/agent.token",
        ):
            assert "Permission denied" in tried(own, f"open({path!r}).read()"), path
        assert "Operation not permitted" in tried(own, f"__import__('os').kill({other.pid}, 9)")
        assert other.view["state"] == "attached"


def test_the_others_kernel_is_neither_seen_nor_acted_on(
    people: list[Person], notebooks: list[Notebook]
):
    for person, own, other in ((people[0], *notebooks), (people[1], *reversed(notebooks))):
        assert [kernel["kernel_id"] for kernel in person.status()["kernels"]] == [own.kernel_id]
        for verb, action, body in (
            ("DELETE", "", None),
            ("POST", "/actions/suspend", {}),
            ("POST", "", {"gpu": 0.1}),
        ):
            assert (
                person.refused(verb, f"gpushare/api/kernels/{other.kernel_id}{action}", body)[0]
                == 404
            )
        [workload] = person.scheduler.rest("GET", "workloads")["workloads"]
        assert workload["user"] == person.name
        assert other.kernel_id not in str(person.scheduler.rest("GET", "nodes"))


def test_what_is_over_ones_quota_is_given_back_to_whom_it_belongs(
    people: list[Person], notebooks: list[Notebook]
):
    """She may have all of the GPU while he has none, and loses the part that is his when he comes
    back, and nothing that is hers.
    """
    hers, his = notebooks
    his.shut_down()
    eventually(lambda: people[0].allocated() == 0.5, "what he had is given back")
    second = people[0].notebook("half", "second.ipynb")
    second.until("attached")
    back = people[1].notebook("half", "back.ipynb")
    back.until("attached", within=60)
    second.until("pending", within=60)
    eventually(
        lambda: second.view["reason"]["code"] == "WaitingForQuota",
        "what she has left is her fair share",
    )
    assert hers.view["state"] == "attached"
    for notebook in (second, back):
        notebook.shut_down()
