"""kill -9 of the agent at every point of the start and the end of a command: the next agent finds
what there is, the command runs once, and no process is left without a lease.

An agent lives in a child process that kills itself at the n-th different line of the files that
start and end commands. GPUSHARE_KILLS in the environment sets the number of points (0: all).
"""

from __future__ import annotations

import asyncio
import getpass
import json
import os
import random
import secrets
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from types import FrameType

import pytest

from jupyter_gpushare.messages import LeaseReleased, NodeRules
from node_agent.reconcile import batch, command_run, command_start, lifecycle
from node_agent.state import journal
from tests.agent.commands import command_lease, marked_processes
from tests.agent.simulated_node import FakeScheduler, World

FILES = {module.__file__ for module in (batch, command_run, command_start, lifecycle, journal)}
KILLS = int(os.environ.get("GPUSHARE_KILLS", "12"))
LIFE_S = 30
GONE_S = 10


class DurableScheduler(FakeScheduler):
    """Remembers in a file how the lease ended, as a scheduler in a process of its own would."""

    def __init__(self, folder: Path) -> None:
        super().__init__(NodeRules(workloads_per_gpu=4, notice_ms=400))
        self.file = folder / "released.json"

    def hear(self, body, orders) -> None:
        if isinstance(body, LeaseReleased) and not self.file.exists():
            fresh = self.file.with_suffix(".new")
            fresh.write_text(json.dumps([body.exit_code, body.message]))
            fresh.replace(self.file)
        super().hear(body, orders)


class Life:
    """Agents that follow each other on the same files, with one command."""

    def __init__(self, script: str, *, cancel: bool) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="gpushare-lives-"))
        self.workload = f"w-{secrets.token_hex(6)}"
        self.script, self.cancel = script, cancel

    @property
    def released(self) -> Path:
        return self.folder / "released.json"

    @property
    def cancelled(self) -> Path:
        return self.folder / "cancelled"

    def runs(self) -> int:
        """How often the command was started."""
        runs = self.folder / "runs"
        return len(runs.read_text().splitlines()) if runs.exists() else 0

    def in_child(self, die_at: int) -> tuple[bool, int]:
        """One agent in a child process. Whether it was killed, and how many lines it had passed."""
        reading, writing = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(reading)
            tracer, problem = Tracer(die_at), ""
            try:
                asyncio.run(asyncio.wait_for(self.live(tracer), LIFE_S))
            except BaseException:
                problem = traceback.format_exc()
            os.write(writing, json.dumps([tracer.count, problem]).encode())
            os._exit(0)
        os.close(writing)
        with os.fdopen(reading) as said:
            text = said.read()
        _, status = os.waitpid(pid, 0)
        killed = os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL
        count, problem = json.loads(text or '[0, ""]')
        assert not problem, problem
        return killed, count

    async def live(self, tracer: Tracer) -> None:
        world = World(gpus=1)
        shutil.rmtree(world.state_dir)
        (self.folder / "state").mkdir(exist_ok=True)
        world.state_dir = self.folder / "state"
        world.config = type(world.config)("n0", world.state_dir, min_notice_ms=0)
        world.scheduler = DurableScheduler(self.folder)
        lease = command_lease(
            self.workload,
            user=getpass.getuser(),
            argv=["sh", "-c", self.script],
            cwd=str(self.folder),
        )
        if not self.released.exists() and not self.cancelled.exists():
            world.scheduler.leases[lease.id] = lease
        await world.start_agent()
        sys.settrace(tracer.calls)
        if self.cancel:
            await world.until(lambda: self.runs() or self.released.exists(), "it runs")
            self.cancelled.touch()
            world.scheduler.leases.pop(lease.id, None)
            world.scheduler._tell(world.scheduler.plan())
        else:
            await world.until(self.released.exists, "it has ended", timeout=60)
        await world.until(lambda: not world.agent.node.kernels, "nothing is left", timeout=60)
        sys.settrace(None)
        await world.agent.stop()


class Tracer:
    """Counts different lines of the files under test, and kills the process at the n-th."""

    def __init__(self, die_at: int) -> None:
        self.die_at, self.seen = die_at, set()

    @property
    def count(self) -> int:
        return len(self.seen)

    def calls(self, frame: FrameType, _event: str, _argument: object) -> Callable | None:
        return self.lines if frame.f_code.co_filename in FILES else None

    def lines(self, frame: FrameType, event: str, _argument: object) -> Callable:
        if event == "line":
            self.seen.add((frame.f_code.co_filename, frame.f_lineno))
            if len(self.seen) == self.die_at:
                os.kill(os.getpid(), signal.SIGKILL)
        return self.lines


SCRIPTS = {
    "ends": ("echo $$ >> runs; sleep 0.3; exit 3", False),
    "cancelled": ("trap '' TERM; echo $$ >> runs; setsid sleep 600 & sleep 601", True),
}


def law(script: str, cancel: bool, die_at: int) -> int:
    """One agent that is killed there, and one that is not. How many lines the first has passed."""
    life = Life(script, cancel=cancel)
    try:
        killed, count = life.in_child(die_at)
        if killed:
            life.in_child(0)
        if not cancel:
            code, message = json.loads(life.released.read_text())
            assert (code, message) == (3, ""), die_at
        assert life.runs() == 1, die_at
        deadline = time.monotonic() + GONE_S
        while left := marked_processes(life.workload):
            assert time.monotonic() < deadline, (die_at, left)
            time.sleep(0.02)
        return count
    finally:
        shutil.rmtree(life.folder, ignore_errors=True)


@pytest.mark.parametrize("way", SCRIPTS)
def test_wherever_the_agent_dies_the_command_runs_once_and_nothing_is_left(way: str, monkeypatch):
    monkeypatch.setattr(batch, "STOP_MS", 300)
    script, cancel = SCRIPTS[way]
    points = law(script, cancel, 0)
    assert points > 100
    chosen = range(1, points + 1)
    if KILLS:
        chosen = sorted(random.sample(chosen, min(KILLS, points)))
    for die_at in chosen:
        law(script, cancel, die_at)
