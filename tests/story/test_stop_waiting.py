"""A person who does not want to wait any more: the waiting cell is refused with the reason, or it
runs without a GPU if the person says so.
"""

from __future__ import annotations

import pytest

from tests.story.front_end import eventually

pytestmark = pytest.mark.slow


@pytest.fixture
def waiting(server, notebook):
    """A notebook with a cell that waits for a GPU, its REST path, and the id of the cell."""
    first, second, mine = notebook("whole"), notebook("whole"), notebook("plain")
    first.until("attached")
    second.until("attached")
    url = f"gpushare/api/kernels/{mine.kernel_id}"
    server.rest("POST", url, {"gpu": 1, "project": "course"})
    mine.until("pending")
    cell = mine.submit("print('ran')")
    eventually(lambda: mine.view["cell_waits"], "the cell waits")
    return mine, url, cell


def test_stop_waiting_refuses_the_cell(server, waiting):
    mine, url, cell = waiting
    server.rest("DELETE", url)
    result = mine.collect(cell)
    assert (result.ok, result.ename) == (False, "CellNotRun")
    assert "the request for a GPU was cancelled" in result.text
    assert "GPU ready" not in result.text
    assert mine.ok("print('without')") == "without\n"


def test_run_without_a_gpu_runs_the_cell_and_keeps_the_request(server, waiting):
    mine, url, cell = waiting
    server.rest("POST", f"{url}/actions/run-without-gpu")
    result = mine.collect(cell)
    assert result.ok
    assert "ran" in result.text
    assert "GPU ready" not in result.text
    assert mine.view["state"] == "pending"
    assert "without" in mine.ok("print('without')")
