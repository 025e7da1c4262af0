"""A course in virtual time: people who think, run a cell on half a GPU, and think again.

Every cell is a request to the real scheduler (`cycle`), which ends when the cell does; so turns
cost nothing, and nobody keeps a share while thinking.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import count

from jupyter_gpushare.core.cluster.cluster import Cluster
from jupyter_gpushare.core.cycle.cycle import cycle
from jupyter_gpushare.core.model.events import NodeJoined, WorkloadEnded, WorkloadSubmitted
from jupyter_gpushare.core.model.model import MembersPolicy, Node, Pod, Policy, Project, Workload
from tests.core.strategies import quota

__all__ = ["Course", "Person", "jain"]

SLOTS_PER_GPU = 2


def jain(amounts: list[float]) -> float:
    """Jain's index: 1 if all are equal."""
    squares = len(amounts) * sum(x * x for x in amounts)
    return sum(amounts) ** 2 / squares if squares else 1.0


@dataclass
class Person:
    """`notebooks` that each think for `think` ms on average and run cells of `cell` ms."""

    name: str
    think: float
    cell: float = 1000
    notebooks: int = 1
    is_fixed: bool = False
    """Times are fixed instead of exponential."""
    held: float = 0.0
    """ms of half a GPU."""
    cells: int = 0
    waits: list[int] = field(default_factory=list)


class Course:
    """`gpus` GPUs in halves. Times in ms."""

    def __init__(
        self, people: list[Person], policy: MembersPolicy | None, gpus: int = 2, seed: int = 1
    ) -> None:
        self.people = {person.name: person for person in people}
        self.random = random.Random(seed)
        project = Project("course", None, {"default": quota(0)}, members_policy=policy)
        self.cluster = Cluster(Policy(projects=(project,)))
        self.cluster.apply(NodeJoined(Node("n", gpus=gpus, gpu_memory=80 * 1024)))
        self.numbers = count()
        self.ahead: list[tuple[int, int, str, str]] = []
        self.asked: dict[str, tuple[str, int, int]] = {}
        """Person, arrival and length by workload."""
        for person in people:
            for _ in range(person.notebooks):
                self._later(self._draw(person, person.think), "think", person.name)

    def _draw(self, person: Person, mean: float) -> int:
        return round(mean if person.is_fixed else self.random.expovariate(1 / mean))

    def _later(self, at: int, kind: str, what: str) -> None:
        heappush(self.ahead, (at, next(self.numbers), kind, what))

    def run(self, until: int, since: int = 0) -> Course:
        """Runs until that time; only cells that arrive after `since` count."""
        while self.ahead and self.ahead[0][0] <= until:
            now = self.ahead[0][0]
            self.cluster.advance(now)
            while self.ahead and self.ahead[0][0] == now:
                *_, kind, what = heappop(self.ahead)
                self._arrives(what, now) if kind == "think" else self._ends(what, now, since)
            for bind in cycle(self.cluster, now).binds:
                name, arrival, length = self.asked[bind.workload]
                if arrival >= since:
                    self.people[name].waits.append(now - arrival)
                self._later(now + length, "cell", bind.workload)
        return self

    def _arrives(self, name: str, now: int) -> None:
        id_ = f"w{next(self.numbers)}"
        length = max(1, self._draw(self.people[name], self.people[name].cell))
        self.asked[id_] = name, now, length
        pod = Pod("kernel", gpu=1000 // SLOTS_PER_GPU)
        work = Workload(id_, "course", (pod,), created=now, user=name)
        self.cluster.apply(WorkloadSubmitted(work))

    def _ends(self, id_: str, now: int, since: int) -> None:
        name, arrival, length = self.asked.pop(id_)
        person = self.people[name]
        if arrival >= since:
            person.held += length
            person.cells += 1
        self.cluster.apply(WorkloadEnded(id_))
        self._later(now + self._draw(person, person.think), "think", name)

    def held(self, *names: str) -> list[float]:
        """What these people have held; none named: all."""
        return [self.people[name].held for name in names or self.people]

    def longest_wait(self) -> float:
        """Seconds; requests that still wait count until now."""
        over = max((max(p.waits) for p in self.people.values() if p.waits), default=0)
        return over / 1000
