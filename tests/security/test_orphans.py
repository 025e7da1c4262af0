"""kill -9 of the agent while commands start: afterwards each command runs once, with a lease, and
none is left without one. `tests/agent/test_killed_batch_agent.py` tries every line of the code.
"""

from __future__ import annotations

import os
import random
import time

import psutil
import pytest

from tests.agent.commands import marked_processes
from tests.security.machine import Machine, as_root, eventually

TRIES = int(os.environ.get("GPUSHARE_KILLS", "40"))
pytestmark = [as_root, pytest.mark.slow, pytest.mark.timeout(300 + 5 * TRIES)]

PER_KILL = 5
"""Commands that start, each at a random time before the kill."""
LATEST_S = 0.8
"""The start of a command takes less than that on an idle machine."""


def test_no_command_is_left_without_a_lease(machine: Machine):
    """The kills are at random times; `GPUSHARE_KILLS=1000` tries as many commands."""
    random.seed(11)
    for first in range(0, TRIES, PER_KILL):
        commands = begin_several(machine, range(first, first + PER_KILL))
        machine.kill_agent()
        ends_while_away = (first // PER_KILL) % 2 == 1
        if ends_while_away:
            for id_ in commands.values():
                machine.end(id_)
        machine.start_agent()
        for number, id_ in commands.items():
            if not ends_while_away:
                wait_for_run(machine, number)
                assert machine.state(id_) == "running"
                machine.end(id_)
            wait_for_end(id_, number)
            assert runs_count(machine, number) <= 1
    assert not processes_of(machine, "bob")


def begin_several(machine: Machine, numbers: range) -> dict[int, str]:
    """Number -> id of its workload. The last one is submitted up to `LATEST_S` ago."""
    runs, begun = machine.home("bob") / "runs", {}
    for number in numbers:
        script = f"echo {number} >> {runs}; exec sleep 300"
        begun[number] = machine.begin("bob", ["sh", "-c", script])
        time.sleep(
            random.uniform(0, LATEST_S / len(numbers) if random.random() < 0.5 else LATEST_S)
        )
    return begun


def wait_for_run(machine: Machine, number: int) -> None:
    eventually(lambda: runs_count(machine, number) == 1, f"command {number} runs")


def wait_for_end(id_: str, number: int) -> None:
    eventually(lambda: not marked_processes(id_), f"nothing is left of command {number}")


def runs_count(machine: Machine, number: int) -> int:
    """How often the command of this try was started."""
    runs = machine.home("bob") / "runs"
    return runs.read_text().split().count(str(number)) if runs.exists() else 0


def processes_of(machine: Machine, who: str) -> list[str]:
    found = []
    for process in psutil.process_iter(["uids", "cmdline", "status"]):
        uids = process.info["uids"]
        is_theirs = uids is not None and uids.real == machine.users[who].pw_uid
        if is_theirs and process.info["status"] != psutil.STATUS_ZOMBIE:
            found.append(" ".join(process.info["cmdline"] or []))
    return found


def test_a_command_cannot_leave_its_tree(machine: Machine):
    """Sessions of their own, double forks and removed marks end with the lease as well."""
    script = (
        "setsid sleep 301 & (setsid sh -c 'sleep 302 & exit' &) ; "
        "env -u GPUSHARE_LAUNCH -u GPUSHARE_WORKLOAD sleep 303 & exec sleep 304"
    )
    id_ = machine.begin("bob", ["sh", "-c", script])

    def sleepers() -> list[str]:
        return [line for line in processes_of(machine, "bob") if line.startswith("sleep 30")]

    eventually(lambda: len(sleepers()) == 4, "all run")
    machine.end(id_)
    eventually(lambda: not sleepers(), "all have ended")
