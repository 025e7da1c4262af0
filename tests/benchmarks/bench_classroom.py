"""A class on two GPUs: `python -m tests.benchmarks.bench_classroom [--notebooks 16] [--minutes 5]
[--copy-rate 100] [--kill] [--json FILE]`.

Real kernels on the demo's policy with simulated GPUs of 80 GiB, half a GPU each, 10 GiB each. Every
student has a script of thinking times (exponential, fixed by its number), runs a cell of one second
after each, and checks that its memory is what it was. The load is one third. The wait of a cell is
the time from the click until its first line runs, the first cell included; kernels are started
before. With `--kill`, agent and scheduler are killed every 20 s and started again.

Bars (copies at 100 GiB/s): 16 notebooks: 95 % wait at most 1.5 s, nobody longer than 4 s; 60
notebooks: 95 % at most 3 s; nobody gets less than 80 % of the cells that the script has; no wrong
bytes, no kernel lost.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from jupyter_gpushare.scheduler.policy.policy_file import default_demo_policy
from tests.benchmarks.machine import print_speed
from tests.story.front_end import Notebook
from tests.story.jupyter_process import Server

SLOTS: Final = 4
LOAD: Final = 1 / 3
CELL_S: Final = 1.0
REQUEST: Final = {"gpu": 0.5, "project": "course"}
FIRST: Final = """\
import time; started = time.time()
from jupyter_gpushare import simgpu
mine = simgpu.alloc("10GiB"); mine.fill({number})
time.sleep(1); print(started)
"""
CELL: Final = """\
import time; started = time.time()
assert mine.sum() == {number} * mine.nbytes, "wrong bytes"
time.sleep(1); print(started)
"""


@dataclass
class Student:
    """One notebook, and the waits of its cells in seconds."""

    number: int
    notebook: Notebook
    chance: random.Random
    waits: list[float] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    def work(self, think_s: float, until: float) -> None:
        """Thinks and runs cells until then."""
        code = FIRST.format(number=self.number)
        while time.time() + (pause := self.chance.expovariate(1 / think_s)) < until:
            time.sleep(pause)
            clicked = time.time()
            try:
                result = self.notebook.run(code, within=600)
            except Exception as error:
                self.problems.append(f"lost: {error!r}")
                return
            if result.ok:
                self.waits.append(float(result.text.strip().splitlines()[-1]) - clicked)
                code = CELL.format(number=self.number)
            else:
                self.problems.append(f"{result.ename}: {result.text[-200:]}")


class Classroom(Server):
    """The demo's policy; with a rate of copies, or to be killed, as three processes."""

    def __init__(self, folder: Path, *, copy_rate: float, apart: bool) -> None:
        super().__init__(folder, remote=apart)
        self.copy_rate = copy_rate
        (folder / "gpushare.yaml").write_text(default_demo_policy(2))
        provisioner = {"provisioner_name": "gpushare-provisioner", "config": REQUEST}
        argv = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
        spec = {"argv": argv, "display_name": "student", "language": "python"}
        self.kernelspec("student", {**spec, "metadata": {"kernel_provisioner": provisioner}})

    def start_agent(self, *options: str) -> None:
        super().start_agent(*options, "--copy-rate", str(self.copy_rate))


def killing(server: Classroom, over: threading.Event) -> None:
    """Kills the agent, then the scheduler, and starts them again."""
    while not over.wait(20):
        server.kill("agent")
        over.wait(1)
        server.start_agent()
        over.wait(20)
        server.kill("scheduler")
        over.wait(1)
        server.start_scheduler()


def measure(server: Classroom, count: int, seconds: float, *, kills: bool) -> list[Student]:
    """All students at work at once."""
    students = []
    for number in range(1, count + 1):
        notebook = server.notebook("student", f"student{number}.ipynb")
        notebook.run("%gpu", within=600)  # its kernel runs
        students.append(Student(number, notebook, random.Random(number)))
    think_s = count * CELL_S / (SLOTS * LOAD)
    until, over = time.time() + seconds, threading.Event()
    threads = [threading.Thread(target=one.work, args=(think_s, until)) for one in students]
    killer = threading.Thread(target=killing, args=(server, over))
    for thread in [*threads, *([killer] if kills else [])]:
        thread.start()
    for thread in threads:
        thread.join()
    over.set()
    if kills:
        killer.join()
    return students


def report(students: list[Student], seconds: float) -> dict[str, object]:
    """The numbers of one run."""
    waits = sorted(wait for one in students for wait in one.waits)
    problems = [problem for one in students for problem in one.problems]
    asked = [len(one.waits) + len(one.problems) for one in students]
    served = [len(one.waits) / n for one, n in zip(students, asked, strict=True) if n]
    firsts = sorted(one.waits[0] for one in students if one.waits)
    return {
        "notebooks": len(students),
        "minutes": round(seconds / 60, 1),
        "cells": len(waits),
        "p50_s": round(waits[len(waits) // 2], 2),
        "p95_s": round(waits[int(len(waits) * 0.95)], 2),
        "max_s": round(waits[-1], 2),
        "first_cell_max_s": round(firsts[-1], 2),
        "least_served": round(min(served), 2),
        "wrong_bytes": sum("wrong bytes" in problem for problem in problems),
        "lost": sum(problem.startswith("lost") for problem in problems),
        "other_errors": [p for p in problems if "wrong bytes" not in p and p[:4] != "lost"][:3],
    }


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("--notebooks", type=int, default=16)
    options.add_argument("--minutes", type=float, default=5)
    options.add_argument("--copy-rate", type=float, default=100, help="GiB/s")
    options.add_argument("--kill", action="store_true")
    options.add_argument("--json", type=Path)
    chosen = options.parse_args()
    print_speed()
    seconds = 60 * chosen.minutes
    with tempfile.TemporaryDirectory() as folder:
        apart = chosen.kill or chosen.copy_rate != 100
        server = Classroom(Path(folder) / "w", copy_rate=chosen.copy_rate, apart=apart)
        try:
            server.start()
            students = measure(server, chosen.notebooks, seconds, kills=chosen.kill)
            kinds = [
                event["kind"] for kernel in server.status()["kernels"] for event in kernel["events"]
            ]
        finally:
            server.stop()
    numbers = report(students, seconds)
    numbers |= {"copy_gib_s": chosen.copy_rate, "killed": chosen.kill}
    numbers |= {kind: kinds.count(kind) for kind in ("released", "suspended", "resumed")}
    sys.stdout.write(json.dumps(numbers) + "\n")
    if chosen.json:
        chosen.json.write_text(json.dumps(numbers))


if __name__ == "__main__":
    main()
