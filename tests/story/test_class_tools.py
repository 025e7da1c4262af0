"""jupyter-scheduler and nbgrader: their kernels wait for a share, run, and release it."""

from __future__ import annotations

import pytest

from tests.story.class_tools import assignment, autograde, jobs_server
from tests.story.front_end import eventually
from tests.story.jupyter_process import Server
from tests.story.tools import ALLOCATE, STATE

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]
WAITING = "gpushare: waiting for a GPU: Needs 1 GPU"


@pytest.fixture
def busy(server: Server):
    """The first of two notebooks that hold all GPUs."""
    made = [server.notebook("whole", f"busy{i}.ipynb") for i in range(2)]
    for one in made:
        one.until("attached")
    yield made[0]
    for one in made:
        one.shut_down()
    server.nothing_is_left()


def test_a_job_of_jupyter_scheduler_waits_runs_and_frees(server: Server, busy):
    with jobs_server(server) as jobs:
        job = jobs.submit("night", "whole", ALLOCATE, STATE)
        eventually(lambda: WAITING in jobs.tool.text, f"it waits; {jobs.tool.text}", 60)
        busy.shut_down()
        assert jobs.ended(job) == "COMPLETED", jobs.tool.text
    outputs = (server.folder / "data/scheduler_staging_area").rglob("*.ipynb")
    assert any("attached" in path.read_text() for path in outputs)


def test_a_job_goes_on_when_its_server_is_killed(server: Server):
    """It is a process of its own, which stores its result itself."""
    go_on = server.folder / "go-on"
    wait = f"import os, time\nwhile not os.path.exists({str(go_on)!r}): time.sleep(0.1)"
    with jobs_server(server) as jobs:
        job = jobs.submit("long", "half", ALLOCATE, wait, STATE)
        eventually(lambda: server.devices()[0]["memory_mib"]["used"] == 1024, "it runs")
    assert server.allocated() == 0.5
    go_on.touch()
    server.nothing_is_left()
    with jobs_server(server) as jobs:
        assert jobs.ended(job) == "COMPLETED"


def test_nbgrader_waits_runs_and_frees(server: Server, busy):
    course = assignment(server, "whole", ALLOCATE, STATE)
    with autograde(server, course) as grading:
        eventually(lambda: WAITING in grading.text, f"it waits; {grading.text}", 60)
        busy.shut_down()
        assert grading.wait() == 0, grading.text
    graded = (course / "autograded/ada/ps1/p1.ipynb").read_text()
    assert "on a GPU" in graded
    assert "attached" in graded
