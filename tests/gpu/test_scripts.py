"""The measuring script itself, on a played driver and with tiny sizes: it runs through, goes on
where it was cut off, gives what it has when a part fails or hangs, and never passes for a
measurement.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from node_agent.devices.nvidia.checkpoint_client import CheckpointClient
from tests.fake_driver.fake_gpu_machine import GIB, MIB, ROOT, FakeGpuMachine, Faults
from tests.gpu import bench
from tests.gpu.measure import RUN
from tests.gpu.page import page

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]
SIZES = "0.03125,0.0625,64"
SMALL, LARGER = "copies-0.03125", "copies-0.0625"


@pytest.fixture
def world():
    with FakeGpuMachine(gpus=1, memory=1 * GIB, context=16 * MIB) as world:
        yield world


@pytest.fixture
def measure(world, tmp_path):
    """Runs it; (exit status, what it printed, the page, the results)."""

    def run(*options: str) -> tuple[int, str, str, dict]:
        command = [
            sys.executable,
            "-m",
            "tests.gpu.measure",
            "--sizes",
            SIZES,
            "--out",
            str(tmp_path / "out"),
            "--state",
            str(tmp_path / "state"),
        ]
        done = subprocess.run(
            [*command, *options],
            capture_output=True,
            text=True,
            cwd=ROOT,
            timeout=170,
            check=False,
            env=os.environ | world.environment(),
        )
        found = next((tmp_path / "out").glob("gpu-*.md"), None)
        assert found is not None, done.stderr
        return (
            done.returncode,
            done.stdout,
            found.read_text(),
            json.loads((tmp_path / "state/results.json").read_text()),
        )

    return run


def parts(*names: str) -> list[str]:
    return [word for name in names for word in ("--part", name)]


def sections(text: str) -> list[str]:
    return re.findall(r"^## (.*)$", text, re.MULTILINE)


def test_the_parts_that_matter_most_and_a_page_that_says_it_measured_nothing(measure):
    _, _, text, results = measure(
        *parts("machine", "tiers", SMALL, LARGER, "memory", "torch", "room", "story")
    )
    assert {name for name, part in results["parts"].items() if part["state"] != "done"} == set(), (
        results
    )
    assert "these are not measurements" in text
    assert "WRONG" not in text
    assert text.count("| right |") >= 6, (
        "two sizes, cold, warm and by the driver alone; 64 GiB do not fit and are left out"
    )
    assert re.search(r"restore without room \| .*\(2\)", text), "the driver's own code"
    assert "not installed (missing torch)" in text
    assert "| A is now | suspended |" in text
    assert "| A's values | right |" in text
    assert "| copies-64" not in text
    assert sections(text)[0] == "Not measured, or not to the end"
    assert "| jax | JAX | not run |" in text


def test_a_part_that_fails_takes_no_other_with_it_and_is_done_the_next_time(measure, world):
    world.fault("cuCheckpointProcessRestore", Faults.FAIL, 999, skip=1)
    status, said, text, results = measure(*parts(SMALL, "polling"))
    assert status == 1
    assert (results["parts"][SMALL]["state"], results["parts"]["polling"]["state"]) == (
        "failed",
        "done",
    )
    assert [row["kind"] for row in results["parts"][SMALL]["rows"]] == ["cold"], (
        "what it had said is kept"
    )
    assert "CUDA_ERROR_UNKNOWN" in text
    assert f"not done: machine, tiers, {SMALL}" in said
    _, said, _, results = measure(*parts(SMALL))
    assert results["parts"][SMALL]["state"] == "done"
    assert results["parts"]["polling"]["state"] == "done", "from before"


def test_a_part_that_hangs_is_ended_with_all_that_it_started(measure, world):
    world.fault("cuCheckpointProcessCheckpoint", Faults.HANG, times=-1)
    _, _, text, results = measure(*parts(SMALL, "polling"), "--limit", "6")
    assert (results["parts"][SMALL]["state"], results["parts"]["polling"]["state"]) == (
        "hung",
        "done",
    )
    assert re.search(rf"\| {SMALL} \| .* \| hung: ended after", text)
    assert left_on(world) == []


def left_on(world: FakeGpuMachine) -> list[int]:
    """Processes that the script has started on this machine and left behind."""
    found = []
    for folder in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            of = (folder / "environ").read_bytes() if folder.name.isdecimal() else b""
            if f"{RUN}=".encode() in of and str(world.path).encode() in of:
                found.append(int(folder.name))
    return found


@pytest.mark.parametrize(
    ("kind", "meanwhile"), {"driver": "answers, longest pause", "stubborn": "stands still"}.items()
)
def test_an_interpreter_that_stands_still_while_a_call_waits_is_told_from_one_that_answers(
    world, monkeypatch, kind, meanwhile
):
    for name, value in world.environment().items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(bench, "STILL_S", 2.0)
    hand = CheckpointClient()
    found = bench.framework(hand, 32 * MIB, kind)
    hand.close()
    assert found.while_waiting.startswith(meanwhile)
    assert found.right


def test_what_does_not_fit_into_the_budget_is_not_begun(measure):
    status, said, _, results = measure("--budget", "10")
    assert status == 1
    assert results["parts"] == {}
    assert "not done: machine, tiers" in said


def test_results_of_another_machine_are_not_mixed_in(measure, world, tmp_path):
    measure(*parts("machine"))
    with FakeGpuMachine(gpus=1, driver=615, memory=1 * GIB) as other:
        command = [
            sys.executable,
            "-m",
            "tests.gpu.measure",
            "--sizes",
            SIZES,
            "--out",
            str(tmp_path),
            "--state",
            str(tmp_path / "state"),
        ]
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            cwd=ROOT,
            check=False,
            env=os.environ | other.environment(),
            timeout=60,
        )
    assert "has results of something else" in done.stderr


def test_the_plan_needs_no_gpu():
    done = subprocess.run(
        [sys.executable, "-m", "tests.gpu.measure", "--plan"],
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=True,
        timeout=60,
    )
    assert "copies-64" in done.stdout


def test_a_source_tree_that_was_never_installed_is_enough(world):
    """A GPU machine has a copy of the tree, and no version that a build has written."""
    code = "import sys; sys.modules['jupyter_gpushare._version'] = None; import node_agent.app, jupyter_gpushare.server_extension.extension"
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr


def test_it_writes_nothing_into_the_docs_on_a_played_driver(world):
    command = [sys.executable, "-m", "tests.gpu.measure"]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=False,
        env=os.environ | world.environment(),
        timeout=60,
    )
    assert done.returncode != 0
    assert "nothing is measured" in done.stderr


def test_a_copy_over_the_bar_says_how_much_of_it_is_the_drivers():
    def row(kind: str, copy: float) -> dict:
        seconds = {"lock": 0.01, "checkpoint": copy, "restore": 0.2, "unlock": 0.01}
        return {
            "kind": kind,
            "size": 16 * GIB,
            "seconds": seconds,
            "right": True,
            "up": 50.0,
            "down": 50.0,
        }

    about = {
        "model": "NVIDIA H200",
        "driver": "580.1",
        "played": False,
        "date": "2026-01-01",
        "total": 140 * GIB,
    }
    rows = [row("warm", 2.5), row("driver", 2.4)]
    text = page(
        {"about": about, "parts": {"copies-16": {"state": "done", "rows": rows}}},
        [("copies-16", "?")],
    )
    assert "over (2.51 of 0.79 s; 2.41 s are the driver's)" in text
    assert "within (0.21 of 0.79 s)" in text
    assert "Played" not in text
