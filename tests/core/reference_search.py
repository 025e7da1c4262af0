"""Second implementation: the search for the victims of one job."""

from __future__ import annotations

from functools import partial

from .reference_rules import Judge, Victims, fair, may_take
from .reference_world import Job, Task, World, asked, held, is_settled, waiting

__all__ = ["solve"]


def solve(world: World, job: Job, victims: Victims, judge: Judge) -> bool:
    start, search = world.save(), Search(world, job, victims, judge)
    if not search.has_victims or not all(search.place_pod(task) for task in waiting(job)):
        world.restore(start)
        return False
    search.place_again()
    affected = in_order(search, [*search.evicted, *search.moved])
    keep_places(world, affected)
    if not search.is_allowed(affected):  # also with pods that found room without evictions
        world.restore(start)
        return False
    return True


def keep_places(world: World, evicted: list[Job]) -> None:
    """Victims whose places are still free stay there, the last victim first (decision 0009)."""
    for victim in reversed(evicted):
        for task in victim.tasks:
            if task.state == "pipelined" and world.room(task.old)[1] >= task.gpus:
                task.state, task.node, task.old = "running", task.old, None
        gone = [task for task in victim.tasks if task.state == "releasing"]
        if len(gone) == len(victim.tasks) and world.gate(victim, sum(t.gpus for t in gone)):
            place_victim(world, gone)


def place_victim(world: World, gone: list[Task]) -> None:
    """Leaves all of these pods where they are, or else moves all of them."""
    saved = world.save()
    for task in gone:
        if world.room(task.node)[1] < task.gpus:
            world.restore(saved)
            if not all(world.seat(task, only_promise=True) for task in gone):
                world.restore(saved)
            return
        task.state = "running"


def still_evicted(victims: list[Job]) -> list[Job]:
    return [v for v in victims if any(t.state == "releasing" for t in v.tasks)]


class Search:
    """Looks for the victims of one job, pod by pod, each on the result of the last (decision
    0009).
    """

    def __init__(self, world: World, job: Job, victims: Victims, judge: Judge) -> None:
        self.world, self.job, self.judge, self.tasks = world, job, judge, waiting(job)
        self.before = {name: world.allocated(name) for name in world.queues}
        self.has_victims = bool(victims(world, job))
        candidates = [v for v in victims(world, job) if is_settled(v)]
        if judge is fair:  # queues without anything to take are left out
            ask = asked(job)
            candidates = [v for v in candidates if may_take(world, job, ask, v, self.before)]
        self.order = in_victim_order(world, candidates)
        self.evicted: list[Job] = []
        self.moved: list[Job] = []
        self.position, self.hosts, self.ask = 0, {}, 0
        self.last: Task | None = None
        self.used: set[str] = set()
        self.is_outranked = False

    def is_allowed(self, affected: list[Job]) -> bool:
        lost = in_order(self, [*self.evicted, *still_evicted(affected)])
        lost = still_evicted(lost)
        return self.judge(self.world, self.job, self.ask, lost, self.before)

    def place_pod(self, task: Task) -> bool:
        """Places one more pod on what is free, else by evicting more."""
        self.ask += task.gpus
        saved, moved = self.world.save(), self.withdraw()
        if self.place(task):
            replace_all(self.world, moved)
            if not moved or self.is_allowed(moved):
                self.add(moved)
                return True
        self.world.restore(saved)
        return self.make_room(task)

    def place(self, task: Task) -> bool:
        return self.world.gate(self.job, task.gpus) and self.world.seat(task, only_promise=True)

    def withdraw(self) -> list[Job]:
        """Moved victims make way for the next pod, behind which they are placed again."""
        for victim in self.moved:
            for task in victim.tasks:
                if task.state == "pipelined":
                    task.node, task.old = task.old, None
                task.state = "releasing"
        return list(reversed(self.moved))

    def add(self, affected: list[Job]) -> None:
        self.used |= {victim.name for victim in affected}
        self.evicted = in_order(self, [*self.evicted, *still_evicted(affected)])
        self.moved = [v for v in affected if is_moved(v)]

    def make_room(self, task: Task) -> bool:
        """Goes down the list of victims, from where the last pod of this size stopped."""
        if self.last is None or self.last.gpus != task.gpus:
            self.position, self.hosts = 0, {}
        self.last = task
        has_room = any(self.world.room(node)[1] >= task.gpus for node in self.world.nodes)
        while self.position < len(self.order):
            victim = self.order[self.position]
            self.position += 1
            if victim.name in self.used:
                continue
            nodes = sorted({t.node for t in victim.tasks if t.node is not None})
            for node in nodes:
                self.hosts.setdefault(node, []).append(victim)
            if any(
                self.has_room(task, node, has_room) and self.attempt(task, node) for node in nodes
            ):
                self.position -= 1
                if len(nodes) > 1:
                    self.position, self.hosts = 0, {}
                return True
        return False

    def has_room(self, task: Task, node: str, has_room: bool) -> bool:
        """Whether the pod fits without these victims. With room somewhere a limit is what forbids
        it.
        """
        self.hosts[node] = [v for v in self.hosts[node] if v.name not in self.used]
        gone = [t for v in self.hosts[node] for t in v.tasks if t.node == node]
        gone += [t for v in self.moved for t in v.tasks if (t.state, t.node) == ("pipelined", node)]
        return has_room or self.world.room(node)[1] + sum(t.gpus for t in gone) >= task.gpus

    def attempt(self, task: Task, node: str) -> bool:
        """Evicts, places the pod and then the victims in order, and asks the judge."""
        saved, victims, moved = self.world.save(), list(self.hosts[node]), self.withdraw()
        for victim in victims:
            for each in victim.tasks:
                each.state = "releasing"
        if self.place_in_order(task, victims):
            replace_all(self.world, moved)
            affected = [*moved, *(v for v in victims if is_affected(v))]
            if self.is_allowed(affected):
                self.add(affected)
                return True
        self.world.restore(saved)
        return False

    def place_in_order(self, task: Task, victims: list[Job]) -> bool:
        todo = {self.job.name: [task], **{v.name: v.tasks for v in victims}}
        while todo:
            jobs = [self.world.jobs[name] for name in todo]
            ask = {name: sum(t.gpus for t in tasks) for name, tasks in todo.items()}
            best = self.world.pick(jobs, None, partial(_asked_of, ask), {}, last=False)
            todo.pop(best.name)
            if best is not self.job:
                self.is_outranked = self.is_outranked or self.job.name in todo
                replace_all(self.world, [best])
            elif not self.place(task):
                return False
        return True

    def place_again(self) -> None:
        """Places a gang once more in its own order, now that all victims are known."""
        if len(self.tasks) < 2 or self.is_outranked:
            return
        saved, moved = self.world.save(), self.withdraw()
        for task in self.tasks:
            task.state, task.node = "pending", None
        if all(self.place(task) for task in self.tasks):
            replace_all(self.world, moved)
            if self.is_allowed(moved):
                self.add(moved)
                return
        self.world.restore(saved)


def _asked_of(ask: dict[str, int], job: Job) -> int:
    return ask[job.name]


def in_victim_order(world: World, candidates: list[Job]) -> list[Job]:
    found, taken = [], {}
    while candidates:
        victim = world.pick(candidates, None, held, taken, last=True)
        candidates = [job for job in candidates if job is not victim]
        for name in world.path(victim.queue):
            taken[name] = taken.get(name, 0) + held(victim)
        found.append(victim)
    return found


def in_order(search: Search, victims: list[Job]) -> list[Job]:
    """Without repetitions, in victim order."""
    names = {victim.name for victim in victims}
    return [job for job in search.order if job.name in names]


def replace_all(world: World, victims: list[Job]) -> None:
    """Places each victim again: all of its pods, or none."""
    for victim in victims:
        gone, saved = [t for t in victim.tasks if t.state == "releasing"], world.save()
        if not world.gate(victim, sum(t.gpus for t in gone)) or not all(
            [world.seat(t, only_promise=True) for t in gone]
        ):
            world.restore(saved)


def is_affected(job: Job) -> bool:
    return any(t.state != "running" for t in job.tasks)


def is_moved(job: Job) -> bool:
    return any(t.state == "pipelined" for t in job.tasks)
