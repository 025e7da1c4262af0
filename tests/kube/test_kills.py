"""Random kill -9, and lines that are cut or fall silent, on a real cluster while two users hold
GPUs and open their notebooks again: no GPU is booked twice, leases end with their pods, no kernel
dies but those of a killed server, and no slot is on a node that is not managed.

`GPUSHARE_KILLS=300 GPUSHARE_LINES=50 pytest -rP tests/kube/test_kills.py` runs for longer.
"""

from __future__ import annotations

import contextlib
import gc
import os
import random
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator

import pytest

from tests.kube.assets import missing
from tests.kube.audit import assert_only_granted
from tests.kube.auditor import Auditor
from tests.kube.control_plane import until
from tests.kube.helm import Helm
from tests.kube.lab import GPUS
from tests.kube.lines import Line
from tests.kube.node import OneNodeCluster
from tests.kube.standby_lab import StandbyLab
from tests.kube.visitors import Visitor
from tests.scheduler.databases import running_cluster
from tests.story.front_end import eventually

KILLS = int(os.environ.get("GPUSHARE_KILLS", "40"))
LINES = int(os.environ.get("GPUSHARE_LINES", "5"))
SHORTEST_S, LONGEST_S = 0.5, min(40.0, 2.0 * LINES)
"""Of a silence. After about 30 s, both ends know."""
RECONNECT_S = 15.0
SETTLED_S = 300.0
UNMANAGED = "unmanaged"
pytestmark = [
    pytest.mark.timeout(600 + 25 * KILLS),
    # a connection to the API server that is killed while it opens
    pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning"),
]


class Killer:
    """Kills one part at a time."""

    def __init__(self, lab: StandbyLab, visitors: list[Visitor], dice: random.Random) -> None:
        self.lab, self.visitors, self.dice = lab, visitors, dice
        self.done: Counter[str] = Counter()

    def kill_one(self) -> None:
        parts: dict[str, Callable[[], None]] = {
            "leader": lambda: self.scheduler(leads=True),
            "standby": lambda: self.scheduler(leads=False),
            "agent": self.agent,
            "kube-apiserver": lambda: self.program("kube-apiserver"),
            "etcd": lambda: self.program("etcd"),
            "kubelet": lambda: self.program("kubelet"),
            "jupyterhub": self.hub,
            "server": self.server,
        }
        weights = (4, 2, 4, 2, 1, 2, 1, 2)
        [part] = self.dice.choices(list(parts), weights)
        parts[part]()
        self.done[part] += 1

    def scheduler(self, *, leads: bool) -> None:
        what = "a leader" if leads else "a standby"
        pod = until(lambda: self.lab.scheduler_pod(leads=leads), what, 180)
        until(lambda: self.lab.cluster.kill_pod_processes(pod), f"{what} runs", 90)

    def agent(self) -> None:
        pod = until(lambda: next(iter(self.lab.pods("agent"))), "the pod of the agent")
        until(lambda: self.lab.cluster.kill_pod_processes(pod), "the agent runs", 90)

    def hub(self) -> None:
        """While no server starts: a Hub that starts again takes up to two minutes to give it up."""
        self._until_settled(len(self.visitors))
        self.program("jupyterhub")

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
        """Of a user who has opened all notebooks again since the last time."""
        visitor = self.dice.choice(self._until_settled(1))
        pod = until(lambda: self.lab.hub.pod(visitor.name), f"the pod of {visitor.name}")
        visitor.killed.add(pod["metadata"]["uid"])
        until(lambda: self.lab.cluster.kill_pod_processes(pod), f"{visitor.name}'s server", 90)

    def _until_settled(self, least: int) -> list[Visitor]:
        """The users who have all notebooks open, once there are so many."""

        def settled() -> list[Visitor]:
            found = [visitor for visitor in self.visitors if visitor.is_settled]
            return found if len(found) >= least else []

        return until(settled, f"{least} users have their notebooks open", SETTLED_S)


class LineTrouble:
    """Cuts lines and makes them silent for a while, beside the kills."""

    def __init__(self, lab: StandbyLab, dice: random.Random) -> None:
        self.lab, self.dice = lab, dice
        self.done: Counter[str] = Counter()
        self._silences: list[threading.Thread] = []
        self.disturbed_until = 0.0
        """Until then, agent and leader may not hear each other. After a silence, TCP repeats what
        was lost within the same time again, and an agent connects again within 15 s.
        """

    def trouble_one(self) -> None:
        line, name = until(self._a_line, "a line")
        if self.dice.random() < 0.5:
            self.done[f"{name} cut"] += 1
            line.cut()
            line.close()
        else:
            self.done[f"{name} silent"] += 1
            seconds = self._silence_s()
            end = time.monotonic() + seconds + max(seconds, RECONNECT_S)
            self.disturbed_until = max(self.disturbed_until, end)
            silence = threading.Thread(target=_silent, args=(line, seconds))
            silence.start()
            self._silences.append(silence)

    def _silence_s(self) -> float:
        """Short ones are more frequent."""
        return self.dice.triangular(SHORTEST_S, LONGEST_S, SHORTEST_S)

    def join(self) -> None:
        for silence in self._silences:
            silence.join()

    def _a_line(self) -> tuple[Line, str]:
        """Raises OSError, StopIteration: not there at the moment."""
        if self.dice.random() < 0.5:
            pods, name = self.lab.pods("agent"), "agent to schedulers"
            addresses = [pod["status"]["podIP"] for pod in self.lab.pods("scheduler")]
        else:
            pods, name = [self.lab.scheduler_pod(leads=True)], "leader to API server"
            addresses = [self.lab.cluster.control_plane.addresses.host]
        pids = [pid for pod in pods for pid in self.lab.cluster.pids(pod)]
        return Line(next(iter(pids)), addresses), name


def _silent(line: Line, seconds: float) -> None:
    with contextlib.closing(line), line.silent():
        time.sleep(seconds)


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
        assert_only_granted(cluster.control_plane)


@pytest.fixture
def visitors(lab: StandbyLab) -> Iterator[list[Visitor]]:
    """Alice and Bob, with all their notebooks open. There is a node of others, too."""
    lab.cluster.control_plane.add_node(UNMANAGED, gpus=GPUS)
    taint = {"key": "gpushare-test/others", "effect": "NoSchedule"}
    lab.api.merge(f"/api/v1/nodes/{UNMANAGED}", {"spec": {"taints": [taint]}})
    made = [Visitor(lab, name) for name in ("alice", "bob")]
    try:
        for visitor in made:
            visitor.start()
        for visitor in made:
            eventually(lambda: visitor.is_settled, "the notebooks are open", 240)  # noqa: B023
        yield made
    finally:
        for visitor in made:
            visitor.stop()
        gc.collect()  # warnings about the killed connections belong to this test


def test_random_kills(lab: StandbyLab, visitors: list[Visitor]):
    seed = random.randrange(1 << 32)
    dice, begun = random.Random(seed), time.monotonic()
    killer, lines = Killer(lab, visitors, dice), LineTrouble(lab, dice)
    auditor = Auditor(lab, visitors, lambda: time.monotonic() < lines.disturbed_until)
    auditor.start()
    try:
        for number in range(KILLS):
            killer.kill_one()
            if (number + 1) * LINES // KILLS > number * LINES // KILLS:
                lines.trouble_one()
            auditor.over.wait(dice.uniform(0, 1))
        lines.join()
        what = f"seed {seed}, kills {dict(killer.done)}, lines {dict(lines.done)}"
        until(
            lambda: lab.is_ready() and lab.are_schedulers_ready() and is_as_before(lab, visitors),
            f"everything is back; {what}; {[v.problem for v in visitors]}",
            180,
        )
    finally:
        auditor.stop()
    assert auditor.wrong == set(), what
    assert auditor.looks > KILLS, what
    assert len(lab.pods("slot")) == GPUS
    sys.stdout.write(
        f"{what}, {time.monotonic() - begun:.0f} s, {auditor.looks} looks at the leases, "
        f"{sum(visitor.opened for visitor in visitors)} notebooks opened, {auditor.ended} leases "
        f"outlived their pods, by at most {auditor.longest_s:.1f} s\n"
    )


def is_as_before(lab: StandbyLab, visitors: list[Visitor]) -> bool:
    """Whether each has all shares again, and nobody else has one."""
    kernels = {one for visitor in visitors for one in visitor.kernels}
    held = {lease["kernel_id"] for lease in lab.leases()}
    return all(visitor.is_settled for visitor in visitors) and held == kernels
