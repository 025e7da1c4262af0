"""`jupyter gpushare top`: printed once without a terminal, live and ended by a key in one."""

from __future__ import annotations

import asyncio
import io
import os
import pty
import select
import subprocess
import sys
import termios
from pathlib import Path

import pytest
from msgspec.structs import replace
from rich.console import Console

from jupyter_gpushare import messages as m
from jupyter_gpushare.cli.top_view import Snapshot, frame
from tests.scheduler.running_server import RunningServer
from tests.scheduler.test_cli_commands import shell, story_with_two_workloads

LIMIT_S = 60


def drawn(snapshot: Snapshot, *, width: int = 160, height: int | None = None) -> str:
    out = io.StringIO()
    Console(file=out, width=width).print(frame(snapshot, width=width, height=height))
    return out.getvalue()


def workload(number: int, **changes: object) -> m.WorkloadView:
    view = m.WorkloadView(
        id=f"w{number}",
        name=f"[red]n{number}.ipynb",
        kernel_id=None,
        user="ada",
        project="vision",
        priority=75,
        preemptible=True,
        node_pools=[],
        created="2026-11-22T10:00:00+00:00",
        state="running",
        request=m.Share(gpu=0.5),
    )
    return replace(view, **changes)


NODE = m.NodeRow(
    name="n0",
    pool="default",
    status="Ready",
    gpus=2,
    gpu_allocated=0.5,
    devices=[
        m.DeviceRow(
            uuid="GPU-0",
            model="A100",
            memory_mib=m.DeviceMemory(total=81920, guaranteed=0, used=71680),
            utilization=0.42,
            temperature_c=61,
            power_w=288,
        ),
        m.DeviceRow(
            uuid="GPU-1",
            model="A100",
            memory_mib=m.DeviceMemory(total=81920, guaranteed=0, used=0),
            healthy=False,
            health="fell off the bus",
        ),
    ],
)
SHOWN = Snapshot([NODE], [workload(1)], "10:00:00")


def test_a_row_per_gpu_with_what_is_measured_and_nothing_else():
    first, second = (line for line in drawn(SHOWN).splitlines() if "A100" in line)
    for text in ("42 %", "70 GiB / 80 GiB", "61 °C", "288 W", "ok"):
        assert text in first
    assert "fell off the bus" in second
    assert "°C" not in second
    assert " W " not in second


@pytest.mark.parametrize("title", ["GPU", "KERNELS", "TEMP", "POWER"])
def test_numbers_end_below_the_end_of_their_title(title: str):
    head, first = drawn(SHOWN).splitlines()[1:3]
    end = head.index(f" {title} ") + len(title) + 1
    assert first[end - 1] != " "
    assert first[end] == " "


@pytest.mark.parametrize("width", [60, 80, 100, 132, 200])
def test_no_line_is_wider_than_the_terminal(width: int):
    waiting = workload(
        2,
        state="pending",
        queue_position=1,
        reason=m.ReasonBody(code="NoQuota", message="A long reason. " * 20),
    )
    text = drawn(Snapshot([NODE], [workload(1), waiting], "10:00:00"), width=width)
    assert max(map(len, text.splitlines())) <= width
    assert len(text.splitlines()) == 8, "nothing wraps"


def test_names_are_no_markup_and_control_characters_are_escaped():
    text = drawn(Snapshot([NODE], [workload(1, user="a\x1b[2Jb")], "10:00:00"))
    assert "[red]n1.ipynb" in text
    assert "\x1b" not in text


def test_workloads_that_do_not_fit_are_counted_and_waiting_ones_come_first():
    many = [workload(number) for number in range(50)]
    waiting = workload(99, name="waits.ipynb", state="pending", queue_position=1)
    text = drawn(Snapshot([NODE], [*many, waiting], "10:00:00"), height=24)
    assert len(text.splitlines()) <= 23, "a line is left for the hint"
    assert "waits.ipynb" in text
    assert "more workloads" in text


def test_without_a_terminal_it_prints_once(tmp_path: Path):
    async def story(running: RunningServer):
        result = await shell(running, "top")
        assert (result.status, result.stderr) == (0, "")
        assert "0.5 / 1 GPUs allocated" in result.stdout
        assert "training.ipynb" in result.stdout
        hers = await shell(running, "top", token=running.token("bob"))
        assert "training.ipynb" not in hers.stdout

    story_with_two_workloads(tmp_path, story)


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_in_a_terminal_it_is_live_and_q_leaves_the_terminal_as_it_was(tmp_path: Path):
    async def story(running: RunningServer):
        await asyncio.to_thread(live, running)

    story_with_two_workloads(tmp_path, story)


def live(running: RunningServer) -> None:
    ours, theirs = pty.openpty()
    before = termios.tcgetattr(theirs)
    argv = [sys.executable, "-m", "jupyter_gpushare.cli", "top", "--interval", "0.5"]
    argv += ["--scheduler", running.url, "--token-file", str(running.listeners.token_file)]
    env = {**os.environ, "TERM": "xterm", "COLUMNS": "140", "LINES": "30"}
    process = subprocess.Popen(argv, stdin=theirs, stdout=theirs, stderr=theirs, env=env)
    try:
        first = read_until(ours, b"training.ipynb")
        assert b"q quits" in first + read_until(ours, b"q quits")
        read_until(ours, b"training.ipynb")  # a second update
        os.write(ours, b"xq")
        read_until(ours, b"\x1b[?1049l")  # the screen of before is back
        assert process.wait(LIMIT_S) == 0
        assert termios.tcgetattr(theirs) == before
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
        os.close(ours)
        os.close(theirs)


def read_until(terminal: int, wanted: bytes) -> bytes:
    """Output up to here; fails when nothing more comes."""
    read = b""
    while wanted not in read:
        ready, _, _ = select.select([terminal], [], [], LIMIT_S)
        assert ready, read
        read += os.read(terminal, 1 << 16)
    return read
