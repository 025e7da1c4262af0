"""jupyter-scheduler and nbgrader, in an environment of their own."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from tests.environments import ROOT, python_of
from tests.story.front_end import Rest, RestError, eventually
from tests.story.jupyter_process import Server
from tests.story.tools import STATE, notebook_file, program
from tests.workers import free_port

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]
ALLOCATE = "from jupyter_gpushare import simgpu; b = simgpu.alloc('1GiB'); print('on a GPU')"
WAITING = "gpushare: waiting for a GPU: Needs 1 GPU"
TREE = {"PYTHONPATH": str(ROOT)}


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
    python, port = str(python_of("classes")), free_port()
    root = server.folder / "jobs"
    root.mkdir()
    notebook_file(root, "night.ipynb", "whole", ALLOCATE, STATE)
    options = {
        "ServerApp.port": port,
        "ServerApp.root_dir": root,
        "ServerApp.allow_root": True,
        "ServerApp.open_browser": False,
        "ServerApp.jpserver_extensions": "{'jupyter_scheduler': True}",
        "IdentityProvider.token": "jobs",
        "SchedulerApp.db_url": f"sqlite:///{root}/jobs.sqlite",
    }
    argv = [f"--{name}={value}" for name, value in options.items()]
    apart = {**TREE, "JUPYTER_CONFIG_DIR": str(root)}
    with program(server, python, "-m", "jupyter_server", *argv, **apart) as jobs:
        rest = Rest(port, "jobs")
        environment = eventually(lambda: _environment(rest), f"it listens; {jobs.text}", 60)
        job = {"name": "night", "input_uri": "night.ipynb", "output_formats": ["ipynb"]}
        job["runtime_environment_name"] = environment
        made = rest.rest("POST", "scheduler/jobs", job)["job_id"]
        eventually(lambda: WAITING in jobs.text, f"it waits; {jobs.text}", 60)
        busy.shut_down()
        done = {"COMPLETED", "FAILED"}
        seen = eventually(
            lambda: (job := rest.rest("GET", f"scheduler/jobs/{made}"))["status"] in done and job,
            f"the job ends; {jobs.text}",
            60,
        )
        assert seen["status"] == "COMPLETED", jobs.text
    outputs = (server.folder / "data/scheduler_staging_area").rglob("*.ipynb")
    assert any("attached" in path.read_text() for path in outputs)


def test_nbgrader_waits_runs_and_frees(server: Server, busy):
    programs = python_of("classes").parent
    nbgrader = str(programs / "nbgrader")
    environ = {**TREE, "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}"}  # it runs alembic
    course = server.folder / "course"
    submitted = course / "submitted/ada/ps1"
    for folder in (course / "source/ps1", submitted):
        folder.mkdir(parents=True)
    source = notebook_file(course / "source/ps1", "p1.ipynb", "whole", ALLOCATE, STATE)
    _graded(source)
    shutil.copy(source, submitted)
    place = f"--CourseDirectory.root={course}"
    with program(server, nbgrader, "generate_assignment", "ps1", place, **environ) as prepared:
        assert prepared.wait() == 0, prepared.text
    with program(server, nbgrader, "autograde", "ps1", place, **environ) as grading:
        eventually(lambda: WAITING in grading.text, f"it waits; {grading.text}", 60)
        busy.shut_down()
        assert grading.wait() == 0, grading.text
    graded = (course / "autograded/ada/ps1/p1.ipynb").read_text()
    assert "on a GPU" in graded
    assert "attached" in graded


def _environment(rest: Rest) -> str:
    """The name of the only one that jupyter-scheduler offers; "": it does not answer yet."""
    try:
        return rest.rest("GET", "scheduler/runtime_environments")[0]["name"]
    except (OSError, RestError):
        return ""


def _graded(path: Path) -> None:
    """Its cells are a student's, the last one with a point."""
    content = json.loads(path.read_text())
    cell = content["cells"][-1]
    cell["metadata"]["nbgrader"] = {
        "grade": True,
        "grade_id": "g1",
        "locked": False,
        "points": 1,
        "schema_version": 3,
        "solution": True,
        "task": False,
        "cell_type": "code",
    }
    path.write_text(json.dumps(content))
