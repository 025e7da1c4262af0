"""jupyter-scheduler and nbgrader, in an environment of their own."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.environments import python_of
from tests.story.front_end import Rest, RestError, eventually
from tests.story.jupyter_process import Server
from tests.story.tools import TREE, Tool, notebook_file, program
from tests.workers import free_port

__all__ = ["Jobs", "assignment", "autograde", "jobs_server"]


class Jobs:
    """jupyter-scheduler, in a Jupyter server without our extension."""

    def __init__(self, tool: Tool, root: Path, port: int) -> None:
        self.tool, self.root = tool, root
        self._rest = Rest(port, "jobs")
        self._environment = eventually(self._offered, f"it listens; {tool.text}", 60)

    def submit(self, name: str, spec: str, *cells: str) -> str:
        """Its id."""
        notebook_file(self.root, f"{name}.ipynb", spec, *cells)
        job = {"name": name, "input_uri": f"{name}.ipynb", "output_formats": ["ipynb"]}
        job["runtime_environment_name"] = self._environment
        return self._rest.rest("POST", "scheduler/jobs", job)["job_id"]

    def ended(self, job_id: str) -> str:
        """Its last status."""
        done = {"COMPLETED", "FAILED"}
        return eventually(
            lambda: (status := self._job(job_id)["status"]) in done and status,
            f"the job ends; {self.tool.text}",
        )

    def _job(self, job_id: str) -> dict:
        return self._rest.rest("GET", f"scheduler/jobs/{job_id}")

    def _offered(self) -> str:
        """The only environment; "": the server does not answer yet."""
        try:
            return self._rest.rest("GET", "scheduler/runtime_environments")[0]["name"]
        except (OSError, RestError):
            return ""


@contextmanager
def jobs_server(server: Server) -> Iterator[Jobs]:
    """Killed at the end. Several servers in turn have the same jobs."""
    python, port, root = str(python_of("classes")), free_port(), server.folder / "jobs"
    root.mkdir(exist_ok=True)
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
    with program(server, python, "-m", "jupyter_server", *argv, **apart) as tool:
        yield Jobs(tool, root, port)


def assignment(server: Server, spec: str, *cells: str) -> Path:
    """The folder of a course in which a student has submitted this notebook."""
    course = server.folder / "course"
    submitted = course / "submitted/ada/ps1"
    for folder in (course / "source/ps1", submitted):
        folder.mkdir(parents=True)
    source = notebook_file(course / "source/ps1", "p1.ipynb", spec, *cells)
    _graded(source)
    shutil.copy(source, submitted)
    with _nbgrader(server, "generate_assignment", course) as prepared:
        assert prepared.wait() == 0, prepared.text
    return course


def autograde(server: Server, course: Path):
    """A running `nbgrader autograde`."""
    return _nbgrader(server, "autograde", course)


def _nbgrader(server: Server, verb: str, course: Path):
    programs = python_of("classes").parent
    environ = {**TREE, "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}"}  # it runs alembic
    place = f"--CourseDirectory.root={course}"
    return program(server, str(programs / "nbgrader"), verb, "ps1", place, **environ)


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
