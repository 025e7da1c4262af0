"""The measuring script with the fake driver and tiny sizes: it runs to the end, continues after an
interruption, keeps results when a part fails or hangs, and never claims to be a measurement.
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
from tests.gpu import experiments
from tests.gpu.measure import RUN
from tests.gpu.report import report

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]
SIZES = "0.03125,0.0625,64"
SMALL, LARGER = "copies-0.03125", "copies-0.0625"


@pytest.fixture
def machine():
    with FakeGpuMachine(gpus=1, memory=1 * GIB, context=16 * MIB) as machine:
        yield machine


@pytest.fixture
def measure(machine, tmp_path):
    """Runs it; (exit status, output, page, results)."""

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
            env=os.environ | machine.environment(),
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


def test_the_most_important_parts_and_a_page_without_measurements(measure):
    _, _, text, results = measure(
        *parts("machine", "tiers", SMALL, LARGER, "memory", "torch", "room", "two-notebooks")
    )
    assert {name for name, part in results["parts"].items() if part["state"] != "done"} == set(), (
        results
    )
    assert "these are not measurements" in text
    assert "WRONG" not in text
    assert text.count("| right |") >= 6, "two sizes: cold, warm and driver; 64 GiB do not fit"
    assert re.search(r"restore without memory \| .*\(2\)", text), "the error code of the driver"
    assert "not installed (missing torch)" in text
    assert "| state of A | suspended |" in text
    assert "| A's values | right |" in text
    assert "| copies-64" not in text
    assert sections(text)[0] == "Not measured, or incomplete"
    assert "| jax | JAX | not run |" in text


def test_a_failing_part_does_not_affect_others_and_is_retried(measure, machine):
    machine.fault("cuCheckpointProcessRestore", Faults.FAIL, 999, skip=1)
    status, said, text, results = measure(*parts(SMALL, "polling"))
    assert status == 1
    assert (results["parts"][SMALL]["state"], results["parts"]["polling"]["state"]) == (
        "failed",
        "done",
    )
    assert [row["kind"] for row in results["parts"][SMALL]["rows"]] == ["cold"], (
        "earlier rows are kept"
    )
    assert "CUDA_ERROR_UNKNOWN" in text
    assert f"not done: machine, tiers, {SMALL}" in said
    _, said, _, results = measure(*parts(SMALL))
    assert results["parts"][SMALL]["state"] == "done"
    assert results["parts"]["polling"]["state"] == "done", "kept"


def test_a_hanging_part_is_killed_with_all_its_processes(measure, machine):
    machine.fault("cuCheckpointProcessCheckpoint", Faults.HANG, times=-1)
    _, _, text, results = measure(*parts(SMALL, "polling"), "--limit", "6")
    assert (results["parts"][SMALL]["state"], results["parts"]["polling"]["state"]) == (
        "hung",
        "done",
    )
    assert re.search(rf"\| {SMALL} \| .* \| hung: ended after", text)
    assert leftovers_on(machine) == []


def leftovers_on(machine: FakeGpuMachine) -> list[int]:
    """Processes of the script that are still running."""
    found = []
    for folder in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            part = (folder / "environ").read_bytes() if folder.name.isdecimal() else b""
            if f"{RUN}=".encode() in part and str(machine.path).encode() in part:
                found.append(int(folder.name))
    return found


@pytest.mark.parametrize(
    ("kind", "meanwhile"), {"driver": "answers, longest pause", "holds-lock": "is blocked"}.items()
)
def test_an_interpreter_blocked_by_a_waiting_call_is_distinguished(
    machine, monkeypatch, kind, meanwhile
):
    for name, value in machine.environment().items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(experiments, "BLOCKED_S", 2.0)
    client = CheckpointClient()
    found = experiments.framework(client, 32 * MIB, kind)
    client.close()
    assert found.while_waiting.startswith(meanwhile)
    assert found.right


def test_parts_that_exceed_the_budget_are_not_started(measure):
    status, said, _, results = measure("--budget", "10")
    assert status == 1
    assert results["parts"] == {}
    assert "not done: machine, tiers" in said


def test_results_of_different_machines_are_not_mixed(measure, machine, tmp_path):
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
    assert "has results of another machine" in done.stderr


def test_the_plan_requires_no_gpu():
    done = subprocess.run(
        [sys.executable, "-m", "tests.gpu.measure", "--plan"],
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=True,
        timeout=60,
    )
    assert "copies-64" in done.stdout


def test_a_source_tree_without_installation_suffices(machine):
    """A GPU machine has a copy of the tree, without the version file of a build."""
    code = (
        "import sys; sys.modules['jupyter_gpushare._version'] = None; "
        "import node_agent.app, jupyter_gpushare.server_extension.extension"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr


def test_with_the_fake_driver_nothing_is_written_to_the_docs(machine):
    command = [sys.executable, "-m", "tests.gpu.measure"]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=False,
        env=os.environ | machine.environment(),
        timeout=60,
    )
    assert done.returncode != 0
    assert "nothing is measured" in done.stderr


def test_a_copy_that_misses_the_target_is_listed_with_the_time_of_the_driver():
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
        "fake": False,
        "date": "2026-01-01",
        "total": 140 * GIB,
    }
    rows = [row("warm", 2.5), row("driver", 2.4)]
    text = report(
        {"about": about, "parts": {"copies-16": {"state": "done", "rows": rows}}},
        [("copies-16", "?")],
    )
    assert "over (2.51 of 0.79 s; 2.41 s by the driver)" in text
    assert "within (0.21 of 0.79 s)" in text
    assert "Fake" not in text
