"""`jupyter gpushare demo`: its output, its tutorial, and that it cleans up."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
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
    activated = ("VIRTUAL_ENV", "CONDA_PREFIX")
    env = {
        **{name: value for name, value in os.environ.items() if name not in activated},
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
    env = {**os.environ, "GPUSHARE_STATE": str(folder / "home"), "PATH": "/usr/bin:/bin"}

    def run(*command: str) -> str:
        return subprocess.run(
            command, check=True, capture_output=True, text=True, timeout=60, env=env
        ).stdout

    answer = run(sys.executable, "-m", "jupyter_gpushare.cli", "nodes", "--json")
    assert json.loads(answer)["nodes"][0]["simulated"]
    said = re.search(r"In another terminal: (.+), or top in place of status\.", printed(folder))
    assert "user " in run(*said[1].split()), "as it is printed, without an activated environment"
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
    """Without JupyterLab, whose part (opening the other notebooks) a person does: the cell says so
    and waits. tests/ui/tutorial.mjs runs it in the browser.
    """
    process, folder = demo
    rest = opened(folder)
    (notebooks,) = folder.glob("gpushare-demo-*/notebooks")
    parts = [
        cells_of(notebooks / name) for name in ("tutorial.ipynb", "second.ipynb", "third.ipynb")
    ]
    a, b, c = (
        rest.notebook("python3", name) for name in ("tutorial.ipynb", "second.ipynb", "third.ipynb")
    )
    by_hand = {
        'tour.run("second': lambda: [b.ok(cell, 60) for cell in parts[1]],
        'tour.run("third': lambda: [c.ok(cell, 60) for cell in parts[2]],
        "third.end()": c.shut_down,
    }
    by_cell = {}
    for cell in parts[0]:
        action = next((by_hand[key] for key in by_hand if key in cell), None)
        if action is None:
            by_cell[cell] = a.ok(cell, 60)
            continue
        with ThreadPoolExecutor() as beside:
            waiting = beside.submit(a.ok, cell, 120)
            action()
            by_cell[cell] = waiting.result()
    assert "second.ipynb has its share" in "".join(by_cell.values())
    assert "its GPU is free" in by_cell["third.end()"]
    assert "(True, 'SIM-GPU" in b.ok(parts[1][-1], 60)
    checks = [text for cell, text in by_cell.items() if cell.startswith("data.sum()")]
    assert checks
    assert all("(True, 'SIM-GPU" in text for text in checks)
    assert "NonPreemptibleOverQuota" in by_cell["%gpu why"]
    assert "simulated" in by_cell["%gpu nodes"]
    assert any(
        cell.startswith("%%gpu") and "1.0 GPU: SIM-GPU" in text for cell, text in by_cell.items()
    )
    for nb in (a, b, c):
        nb.ws.close()
    process.send_signal(signal.SIGTERM)
    assert process.wait(30) == 0


def test_changed_notebooks_are_kept_and_others_are_not(demo):
    process, folder = demo
    rest = opened(folder)
    content = {"cells": [], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}
    body = {"type": "notebook", "format": "json", "content": content}
    rest.rest("PUT", "api/contents/mine.ipynb", body)
    shipped = rest.rest("GET", "api/contents/second.ipynb")["content"]
    shipped["metadata"]["opened"] = True  # JupyterLab notes what it likes
    rest.rest("PUT", "api/contents/second.ipynb", {**body, "content": shipped})
    process.send_signal(signal.SIGTERM)
    assert process.wait(30) == 0
    (place,) = (folder / "home/demo-notebooks").iterdir()
    assert [path.name for path in place.iterdir()] == ["mine.ipynb"]
    assert f"Changed notebooks are in {place}: mine.ipynb" in printed(folder)
    assert list(folder.glob("gpushare-demo-*")) == []


def test_the_console_has_one_address_and_it_opens_the_tutorial(demo):
    process, folder = demo
    opened(folder)
    (address,) = re.findall(r"https?://\S+", printed(folder))
    assert "/lab/tree/tutorial.ipynb?token=" in address
    process.send_signal(signal.SIGTERM)
    assert process.wait(30) == 0
    assert "No notebook was changed." in printed(folder)


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
