"""nbconvert, `jupyter run` and others without a Jupyter server: kernels get the share of their
kernelspec, wait for it, and release it.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.environments import python_of
from tests.story.front_end import PROXY, eventually
from tests.story.jupyter_process import command_line, processes_of
from tests.story.other_kernels import other_kernel
from tests.story.tools import ALLOCATE, STATE, notebook_file, tool

__all__ = ["other_kernel"]

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]
BACK = re.compile(r"--back (\S+)")
FOREVER = "import time; time.sleep(600)"


def execute(path) -> tuple[str, ...]:
    return ("jupyter-nbconvert", "--to", "notebook", "--execute", str(path), "--output", "done")


def workloads(server) -> list[dict]:
    return server.rest("GET", "gpushare/api/workloads")["workloads"]


def test_a_notebook_waits_until_a_gpu_is_free_and_gives_it_back(server):
    busy = [server.notebook("whole", f"busy{i}.ipynb") for i in range(2)]
    for one in busy:
        one.until("attached")
    path = notebook_file(server.folder, "night.ipynb", "whole", ALLOCATE, STATE)
    with tool(server, *execute(path)) as nbconvert:
        eventually(lambda: "gpushare: waiting for a GPU: Needs 1 GPU" in nbconvert.text, "waits")
        assert not (server.folder / "done.ipynb").exists()
        users = {one["name"]: one["user"] for one in workloads(server)}
        assert users[str(path)] == server.status()["user"]
        busy[0].shut_down()
        assert nbconvert.wait() == 0, nbconvert.text
    assert "GPU granted after" in nbconvert.text
    done = (server.folder / "done.ipynb").read_text()
    assert "on a GPU" in done
    assert "attached" in done
    busy[1].shut_down()
    server.nothing_is_left()


def test_a_killed_tool_frees_its_share_at_once(server):
    path = notebook_file(server.folder, "killed.ipynb", "half", ALLOCATE, FOREVER)
    with tool(server, *execute(path)) as nbconvert:
        eventually(lambda: server.devices()[0]["memory_mib"]["used"] == 1024, "it runs", 60)
        nbconvert.process.kill()
        eventually(lambda: server.allocated() == 0, "the share is free", 30)
    server.nothing_is_left()


def test_a_script_gets_the_share_of_its_kernelspec(server):
    script = server.folder / "script.py"
    script.write_text(f"{ALLOCATE}\n{STATE}\n")
    with tool(server, "jupyter-run", "--kernel", "half", str(script)) as run:
        assert run.wait() == 0, run.text
        assert "on a GPU" in run.text
        assert "attached" in run.text
    server.nothing_is_left()


def test_kernels_of_other_languages_end_with_a_killed_tool(server, other_kernel, tmp_path):
    """R and xeus-python do not notice that their parent has gone."""
    server.kernelspec("other", other_kernel.spec("other", gpu=0.5))
    marker = tmp_path / "marker"
    cells = other_kernel.run(f"touch {marker}"), other_kernel.run("sleep 600")
    path = notebook_file(server.folder, "other.ipynb", "other", *cells)
    with tool(server, *execute(path)) as nbconvert:
        eventually(marker.exists, f"its first cell has run; {nbconvert.text}", 60)
        assert server.allocated() == 0.5
        [folder] = {
            Path(found[1]).parent for found in map(BACK.search, _kernel_lines(server)) if found
        }
        assert any(folder.iterdir())
        nbconvert.process.kill()
        eventually(lambda: server.allocated() == 0, "the share is free", 30)
    server.nothing_is_left()
    eventually(lambda: not _kernel_lines(server), "no kernel or proxy is left")
    assert not folder.exists(), "no key is left"


def _kernel_lines(server) -> list[str]:
    lines = [command_line(process) for process in processes_of(server.folder)]
    kernels = ("bash_kernel", "IRkernel", "xpython", "interrupt_sensitive", PROXY)
    return [line for line in lines if any(name in line for name in kernels)]


def test_a_wrong_request_ends_the_tool_with_its_reason(server):
    path = notebook_file(server.folder, "wrong.ipynb", "nowhere", "1")
    with tool(server, *execute(path)) as nbconvert:
        assert nbconvert.wait() == 1
        assert "unknown project 'nope'" in nbconvert.text.strip().splitlines()[-1]


def test_without_a_scheduler_there_is_one_warning_or_an_error_if_gpus_are_required(server):
    path = notebook_file(server.folder, "alone.ipynb", "half", "print(1)")
    nothing = str(server.folder / "nothing")
    with tool(server, *execute(path), GPUSHARE_STATE=nothing) as nbconvert:
        assert nbconvert.wait() == 0, nbconvert.text
        line = "gpushare: the kernel starts without a share, and is not governed: no scheduler"
        assert nbconvert.text.count(line) == 1
    with tool(server, *execute(path), GPUSHARE_STATE=nothing, GPUSHARE_REQUIRED="1") as nbconvert:
        assert nbconvert.wait() == 1
        assert "no GPU: no scheduler is known" in nbconvert.text.strip().splitlines()[-1]


def test_without_a_scheduler_a_foreign_kernel_can_import_gpu_and_says_why_it_has_none(server):
    argv = [str(python_of("oldest")), "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    command = ["env", "-u", "PYTHONPATH", *argv]
    metadata = {"kernel_provisioner": {"provisioner_name": "gpushare-provisioner", "config": {}}}
    spec = {"argv": command, "display_name": "old", "language": "python", "metadata": metadata}
    server.kernelspec("old", spec)
    cells = STATE, "%gpu", "%%gpu 0.5\n1"
    path = notebook_file(server.folder, "foreign.ipynb", "old", *cells)
    with tool(server, *execute(path), GPUSHARE_STATE=str(server.folder / "nothing")) as nbconvert:
        assert nbconvert.wait() == 1
        assert "this kernel has no GPU share: no scheduler is known" in nbconvert.text
        assert "starts without a share" not in nbconvert.text  # nothing was requested


def test_a_command_with_a_share_lends_it_to_its_notebooks(server):
    path = notebook_file(server.folder, "inside.ipynb", "half", ALLOCATE)
    passed = ("JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR", "JUPYTER_CONFIG_DIR", "IPYTHONDIR", "HOME")
    names = [word for name in passed for word in ("--env", name)]
    command = ("jupyter-gpushare", "run", "--gpu", "0.5", *names, "--", *execute(path))
    with tool(server, *command) as run:
        assert run.wait() == 0, run.text
        assert "uses the share of the command or notebook" in run.text
        assert "on a GPU" in (server.folder / "done.ipynb").read_text()
    server.nothing_is_left()
