"""A cell of a notebook and a cell of its subshell wait at once."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.slow
ALLOCATE = "from jupyter_gpushare import simgpu\nprint(f'{name} {{simgpu.alloc(1 << 30).nbytes}}')"


@pytest.fixture
def waiting(server, notebook):
    """Another notebook has all GPUs; two cells of one notebook wait."""
    other = notebook("plain")
    other.ok("%gpu request 2")
    mine = notebook("half")
    cells = (
        mine.submit(ALLOCATE.format(name="main")),
        mine.submit(ALLOCATE.format(name="side"), mine.create_subshell()),
    )
    for cell in cells:
        mine.until_shown(cell, "stop waiting" if cell == cells[0] else " s)")
    return other, mine, cells


def test_both_run_when_the_gpu_is_granted(waiting):
    other, mine, cells = waiting
    other.ok("%gpu release")
    for cell, name in zip(cells, ("main", "side"), strict=True):
        result = mine.collect(cell)
        assert result.ok, result.text
        assert "GPU ready after" in result.text
        assert f"{name} {1 << 30}" in result.text


def test_an_interrupt_ends_the_wait_of_the_main_cell_alone(waiting):
    other, mine, (main, side) = waiting
    mine.interrupt()
    assert mine.collect(main).ename == "CellNotRun"
    other.ok("%gpu release")
    assert mine.collect(side).ok


def test_a_second_interrupt_ends_the_wait_of_the_subshell(waiting):
    _, mine, (main, side) = waiting
    mine.interrupt()
    assert mine.collect(main).ename == "CellNotRun"
    mine.interrupt()
    assert mine.collect(side).ename == "CellNotRun"


def test_a_cancelled_request_refuses_both(server, waiting):
    _, mine, cells = waiting
    server.rest("DELETE", f"gpushare/api/kernels/{mine.kernel_id}")
    ends = [mine.collect(cell) for cell in cells]
    assert [end.ename for end in ends] == ["CellNotRun", "CellNotRun"]
    assert "the request for a GPU was cancelled" in ends[0].text
    assert not any("GPU ready" in end.text for end in ends)


def test_both_run_without_a_gpu_when_the_person_chooses_so(server, waiting):
    _, mine, cells = waiting
    server.rest("POST", f"gpushare/api/kernels/{mine.kernel_id}/actions/run-without-gpu")
    for cell in cells:
        result = mine.collect(cell)
        assert "The cell runs without a GPU." in result.text
        assert result.ename == "NoGpuError"
        assert "GPU ready" not in result.text
