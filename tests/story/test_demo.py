"""`jupyter gpushare demo`: its output, its tutorial, and that it cleans up."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tests.story.front_end import Rest, eventually
from tests.story.jupyter_process import processes_of

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]


@pytest.fixture
def demo():
    """A running demo; its output is in `out`."""
    with tempfile.TemporaryDirectory(prefix="gs-", ignore_cleanup_errors=True) as short:
        # pytest's own folders are too long for the path of a unix socket
        yield from running_demo(Path(short))


def running_demo(tmp_path: Path):
    argv = [
        sys.executable,
        "-m",
        "jupyter_gpushare.cli",
        "demo",
        "--no-browser",
        "--port",
        "0",
        "--gpus",
        "2",
    ]
    env = {
        **os.environ,
        "TMPDIR": str(tmp_path),
        "STORY_WORLD": str(tmp_path),
        "GPUSHARE_STATE": str(tmp_path / "home"),
    }
    with (tmp_path / "out").open("wb") as out:
        process = subprocess.Popen(
            argv, env=env, stdout=out, stderr=out, stdin=subprocess.DEVNULL, cwd=tmp_path
        )
    yield process, tmp_path
    if process.poll() is None:
        process.kill()
        process.wait()
    for left in processes_of(tmp_path):
        left.kill()


def printed(folder: Path) -> str:
    return (folder / "out").read_text()


def opened(folder: Path) -> Rest:
    found = eventually(
        lambda: re.search(r"http://127\.0\.0\.1:(\d+)/lab\S*\?token=(\w+)", printed(folder)),
        "the address is printed",
        60,
    )
    rest = Rest(int(found[1]), found[2])
    eventually(
        lambda: rest.status()["scheduler"]["reachable"] and rest.status()["agent"]["reachable"],
        "it runs",
        60,
    )
    return rest


@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGTERM], ids=lambda s: s.name)
def test_it_exits_cleanly_and_leaves_nothing(demo, ending):
    process, folder = demo
    rest = opened(folder)
    assert "simulated GPUs" in printed(folder)
    assert rest.status()["simulated"]
    layout = rest.rest("GET", "lab/api/workspaces/default")["data"]["layout-restorer:data"]
    assert layout["right"]["current"] == "jupyter-gpushare", (
        "the sidebar is open at the first visit"
    )
    nb = rest.notebook("python3", "a.ipynb")
    nb.ok("%gpu request 0.5")
    nb.ws.close()
    process.send_signal(ending)
    assert process.wait(30) == 0
    assert [p.cmdline() for p in processes_of(folder)] == []
    assert list(folder.glob("gpushare-demo-*")) == []


def test_the_command_line_finds_it_without_an_address(demo):
    process, folder = demo
    opened(folder)
    command = [sys.executable, "-m", "jupyter_gpushare.cli", "nodes", "--json"]
    env = {**os.environ, "GPUSHARE_STATE": str(folder / "home")}
    answer = subprocess.run(command, check=True, capture_output=True, timeout=60, env=env)
    assert json.loads(answer.stdout)["nodes"][0]["simulated"]
    process.send_signal(signal.SIGTERM)
    assert process.wait(30) == 0
    assert list((folder / "home").iterdir()) == []


def cells_of(file: Path) -> list[str]:
    return [
        "".join(cell["source"])
        for cell in json.loads(file.read_text())["cells"]
        if cell["cell_type"] == "code"
    ]


def test_the_tutorial_runs_as_written(demo):
    process, folder = demo
    rest = opened(folder)
    (notebooks,) = folder.glob("gpushare-demo-*/notebooks")
    parts = [
        cells_of(notebooks / name) for name in ("tutorial.ipynb", "second.ipynb", "third.ipynb")
    ]
    a, b, c = (
        rest.notebook("python3", name) for name in ("tutorial.ipynb", "second.ipynb", "third.ipynb")
    )
    nodes, kept, last = (
        parts[0].index(cell) for cell in ("%gpu nodes", "%gpu history", "data.free()\n%gpu release")
    )
    shown = [a.ok(cell, 60) for cell in parts[0][:nodes]]
    assert "(True, 'SIM-GPU" in [b.ok(cell, 60) for cell in parts[1]][-1]
    shown += [a.ok(cell, 60) for cell in parts[0][nodes : nodes + 1]]
    for cell in parts[2]:
        c.ok(cell, 60)
    shown += [a.ok(cell, 60) for cell in parts[0][nodes + 1 : kept + 1]]
    assert "(True, 'SIM-GPU" in b.ok(parts[1][-1], 60)
    c.shut_down()
    shown += [a.ok(cell, 60) for cell in parts[0][kept + 1 : last + 1]]
    by_cell = dict(zip(parts[0], shown, strict=True))
    assert len([text for text in shown if "(True, 'SIM-GPU" in text]) == 2
    assert "NonPreemptibleOverQuota" in by_cell["%gpu why"]
    assert "simulated" in by_cell["%gpu nodes"]
    assert any(
        cell.startswith("%%gpu") and "1.0 GPU: SIM-GPU" in text for cell, text in by_cell.items()
    )
    for nb in (a, b, c):
        nb.ws.close()
    process.send_signal(signal.SIGTERM)
    assert process.wait(30) == 0


def test_a_bad_policy_is_one_line_and_nothing_starts(tmp_path):
    (tmp_path / "bad.yaml").write_text(
        "projects: [{name: p, pools: {default: {gpu: {quota: -1}}}}]\n"
    )
    argv = [
        sys.executable,
        "-m",
        "jupyter_gpushare.cli",
        "demo",
        "--no-browser",
        "--policy",
        str(tmp_path / "bad.yaml"),
    ]
    env = {**os.environ, "TMPDIR": str(tmp_path)}
    answer = subprocess.run(argv, check=False, capture_output=True, text=True, timeout=60, env=env)
    assert answer.returncode == 2
    assert answer.stderr.startswith("error: ")
    assert len(answer.stderr.strip().splitlines()) == 1
    assert list(tmp_path.glob("gpushare-demo-*")) == []
