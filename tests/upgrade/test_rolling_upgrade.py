"""From 0.1.0 to this version while notebooks run: the scheduler first, then the agent (once back
and again), then the Jupyter server. Both versions run side by side at every step.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.story.front_end import Notebook, eventually
from tests.upgrade.versions import NEW, OLD_VERSION, VersionedServer, old_tree, tree_of

__all__ = ["old_tree"]  # a fixture

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]

HOLD = (
    "from jupyter_gpushare import simgpu; a = simgpu.alloc('20GiB'); a.fill(7); "
    "print(simgpu.device_uuid())"
)
IS_KEPT = "print(a.sum() == 7 * a.nbytes)"


@pytest.fixture
def server(tmp_path: Path, old_tree: Path) -> Iterator[VersionedServer]:
    made = VersionedServer(tmp_path, old_tree, gpus=2)
    try:
        yield made.start()
    finally:
        made.stop()


def is_reachable(server: VersionedServer) -> bool:
    status = server.status()
    return bool(status["scheduler"]["reachable"] and status["agent"]["reachable"])


def holds(notebook: Notebook) -> None:
    """The last line: waiting for a GPU may be shown above it."""
    assert notebook.ok(HOLD).strip().splitlines()[-1].startswith("SIM-GPU-")


def keeps(notebook: Notebook) -> None:
    assert notebook.ok(IS_KEPT).strip().endswith("True")


def versions(server: VersionedServer) -> list[Path]:
    """Of scheduler, agent and Jupyter server."""
    names = ("scheduler", "agent", "jupyter")
    return [Path(tree_of(server.processes[name].pid)) for name in names]


def test_notebooks_keep_their_memory_and_new_ones_start_at_every_step(
    server: VersionedServer, old_tree: Path
) -> None:
    assert server.status()["scheduler"]["version"] == OLD_VERSION
    first = server.notebook("half", "first.ipynb")
    holds(first)

    server.upgrade("scheduler")
    eventually(lambda: is_reachable(server), "the new scheduler knows the old agent")
    assert versions(server) == [NEW, old_tree, old_tree]
    second = server.notebook("half", "second.ipynb")
    holds(second)
    keeps(first)

    server.upgrade("agent")
    eventually(lambda: is_reachable(server), "the old server reaches the new agent")
    assert versions(server) == [NEW, NEW, old_tree]
    third = server.notebook("half", "third.ipynb")
    holds(third)
    for notebook in (first, second):
        keeps(notebook)
    for tree in (old_tree, NEW):  # commands of both versions
        shown = server.command(tree, "status")
        assert (shown.returncode, shown.stderr) == (0, "")
        assert "second.ipynb" in shown.stdout
    assert psutil.Process(third.pid).environ()["PYTHONPATH"] == str(old_tree)

    server.upgrade("agent", old_tree)
    eventually(lambda: is_reachable(server), "the old agent reads what the new one wrote")
    keeps(first)
    server.upgrade("agent")
    eventually(lambda: is_reachable(server), "the new agent again")
    keeps(second)

    server.upgrade("jupyter")
    eventually(lambda: is_reachable(server), "the new server reaches both")
    assert versions(server) == [NEW, NEW, NEW]
    last = server.notebook("half", "last.ipynb")
    holds(last)
    last.shut_down()
    server.nothing_is_left()
