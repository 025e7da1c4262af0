"""Random kill -9 on a real cluster while two users hold GPUs: no GPU is booked twice, leases end
with their pods, and no kernel dies but those of a killed server.

`GPUSHARE_KILLS=300 pytest tests/kube/test_kills.py` runs for longer.
"""

from __future__ import annotations

import contextlib
import gc
import os
import random
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest

from tests.kube.api import Refused
from tests.kube.assets import missing
from tests.kube.control_plane import until
from tests.kube.helm import Helm
from tests.kube.lab import GPUS, Lab
from tests.kube.node import OneNodeCluster
from tests.kube.standby_lab import StandbyLab
from tests.scheduler.databases import running_cluster
from tests.story.front_end import Notebook, RestError, eventually
from tests.story.hub_process import Person

KILLS = int(os.environ.get("GPUSHARE_KILLS", "40"))
pytestmark = [
    pytest.mark.timeout(300 + 20 * KILLS),
    # a connection to the API server that is killed while it opens
    pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning"),
]

NETWORK = (httpx.HTTPError, Refused, OSError, RestError, StopIteration)
"""What a part that was just killed answers."""


class Auditor(threading.Thread):
    """Looks at the leases all the time. `overbooked`: GPUs that were promised twice."""

    def __init__(self, lab: Lab) -> None:
        super().__init__(daemon=True)
        self.lab, self.over = lab, threading.Event()
        self.overbooked: list[str] = []
        self.looks = 0

    def run(self) -> None:
        while not self.over.wait(0.2):
            try:
                self.look()
            except (*NETWORK, AssertionError):  # or there is no address to ask
                continue

    def look(self) -> None:
        used: Counter[int] = Counter()
        for lease in self.lab.leases():
            for gpu in lease["planned_gpus"]:
                used[gpu] += lease["request_mib"]
        self.looks += 1
        self.overbooked += [f"GPU {gpu}: {mib} MiB" for gpu, mib in used.items() if mib > 81920]


class Killer:
    """Kills one part at a time. `lost`: users whose server was killed."""

    def __init__(self, lab: StandbyLab, seed: int) -> None:
        self.lab, self.random = lab, random.Random(seed)
        self.kills: Counter[str] = Counter()
        self.lost: set[str] = set()

    def kill_one(self) -> None:
        parts: dict[str, Callable[[], None]] = {
            "leader": lambda: self.scheduler(leads=True),
            "standby": lambda: self.scheduler(leads=False),
            "agent": self.agent,
            "kube-apiserver": lambda: self.program("kube-apiserver"),
            "etcd": lambda: self.program("etcd"),
            "kubelet": lambda: self.program("kubelet"),
            "jupyterhub": lambda: self.program("jupyterhub"),
            "server": self.server,
        }
        weights = (4, 2, 4, 2, 1, 2, 1, 2)
        [part] = self.random.choices(list(parts), weights)
        parts[part]()
        self.kills[part] += 1

    def scheduler(self, *, leads: bool) -> None:
        what = "a leader" if leads else "a standby"
        pod = until(lambda: self.lab.scheduler_pod(leads=leads), what, 180)
        until(lambda: self.lab.cluster.kill_pod_processes(pod), f"{what} runs", 90)

    def agent(self) -> None:
        pod = until(lambda: next(iter(self.lab.pods("agent"))), "the pod of the agent")
        until(lambda: self.lab.cluster.kill_pod_processes(pod), "the agent runs", 90)

    def program(self, name: str) -> None:
        processes = self.lab.cluster.processes
        processes.kill(name)
        processes.start_again(name)
        if name in ("etcd", "kube-apiserver"):  # the other parts are found by asking it
            until(lambda: self.lab.api.get("/api/v1/nodes"), "the API server answers", 120)
        if name == "jupyterhub":
            # JupyterHub stops each server that it cannot ask Kubernetes about while it starts
            eventually(self.lab.hub.has_checked_servers, "the Hub has checked its servers", 180)

    def server(self) -> None:
        """Nothing, if the Hub has seen an earlier kill and removed the pod."""
        name = self.random.choice(sorted(self.lab.hub.people))
        self.lost.add(name)
        until(lambda: self.kill_server(name), f"{name}'s server runs", 90)

    def kill_server(self, name: str) -> bool:
        pod = self.lab.hub.pod(name)
        return pod is None or self.lab.cluster.kill_pod_processes(pod) > 0


def open_notebooks(person: Person) -> list[Notebook]:
    """Two notebooks with half a GPU each."""
    made = []
    for number in range(2):
        notebook = eventually(
            lambda: person.notebook("python3", f"kills-{number}.ipynb"),  # noqa: B023
            f"a notebook of {person.name}",
            120,
        )
        eventually(lambda: request(person, notebook), "the share is requested", 120)  # noqa: B023
        made.append(notebook)
    for notebook in made:
        notebook.until("attached", within=120)
    return made


def request(person: Person, notebook: Notebook) -> bool:
    person.rest("POST", f"gpushare/api/kernels/{notebook.kernel_id}", {"gpu": 0.5})
    return True


@pytest.fixture
def lab(tmp_path_factory: pytest.TempPathFactory, helm: Helm) -> Iterator[StandbyLab]:
    """A cluster of its own. `helm` is a reason to skip."""
    if reason := missing(node=True):
        pytest.skip(reason)
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(running_cluster())
        if server is None:
            pytest.skip("PostgreSQL is not installed (`make test` installs it)")
        cluster = OneNodeCluster(tmp_path_factory.mktemp("kills"))
        stack.callback(cluster.stop)
        database = stack.enter_context(server.database())
        made = StandbyLab(cluster.start(), server, database)
        stack.callback(lambda: sys.stdout.write(made.logs()))  # shown when a test fails
        yield made.start()
        made.stop()


@pytest.fixture
def opened(lab: Lab) -> Iterator[dict[str, list[Notebook]]]:
    """The notebooks of alice and bob."""
    notebooks: dict[str, list[Notebook]] = {}
    try:
        for person in (lab.user("alice"), lab.user("bob")):
            notebooks[person.name] = open_notebooks(person)
        yield notebooks
    finally:
        for notebook in (n for mine in notebooks.values() for n in mine):
            notebook.ws.close()
        gc.collect()  # warnings about the killed connections belong to this test


def test_random_kills(lab: StandbyLab, opened: dict[str, list[Notebook]]):
    pids = {n.kernel_id: n.pid for mine in opened.values() for n in mine}
    seed = random.randrange(1 << 32)
    auditor, killer = Auditor(lab), Killer(lab, seed)
    auditor.start()
    try:
        for _ in range(KILLS):
            killer.kill_one()
            auditor.over.wait(killer.random.uniform(0, 2))
        what = f"seed {seed}, kills {dict(killer.kills)}"
        gone = {n.kernel_id for name in killer.lost for n in opened[name]}
        until(
            lambda: lab.is_ready() and lab.are_schedulers_ready() and not gone & held(lab),
            f"everything is back, and the leases of killed servers have ended; {what}",
            180,
        )
    finally:
        auditor.over.set()
        auditor.join(30)
    kept = [n for name, mine in opened.items() if name not in killer.lost for n in mine]
    for notebook in kept:
        eventually(lambda: notebook.view["state"] == "attached", what, 120)  # noqa: B023
        assert notebook.pid == pids[notebook.kernel_id], f"a kernel died: {what}"
    assert auditor.overbooked == [], what
    assert auditor.looks > KILLS, what
    assert len(lab.pods("slot")) == GPUS
    sys.stdout.write(f"{what}, {auditor.looks} looks at the leases\n")


def held(lab: Lab) -> set[Any]:
    return {lease["kernel_id"] for lease in lab.leases()}
