"""Kernels of tools without a Jupyter server: addresses, names, shares around them."""

from __future__ import annotations

import json
import os
import sys
from contextlib import contextmanager

import pytest

from jupyter_gpushare.addresses import SCHEDULER_LOCK, agent_socket, scheduler_note
from jupyter_gpushare.core.model.errors import Unavailable
from jupyter_gpushare.scheduler.store.locks import only_one
from jupyter_gpushare.server_extension.headless.session import tool_session
from jupyter_gpushare.server_extension.headless.tool import inherited, is_inside_share, tool_name


def test_the_scheduler_of_this_user_is_found_before_that_of_the_demo(tmp_path):
    environ = {"GPUSHARE_STATE": str(tmp_path)}
    assert scheduler_note(environ) is None
    (tmp_path / "demo").mkdir()
    for folder in (tmp_path / "demo", tmp_path):
        note = {"url": f"unix://{folder}/s", "token_file": f"{folder}/token"}
        (folder / "scheduler.json").write_text(json.dumps(note))
        found = scheduler_note(environ)
        assert (found.folder, found.url) == (folder, note["url"])


def test_a_scheduler_that_runs_is_found_before_one_that_has_ended(tmp_path):
    environ = {"GPUSHARE_STATE": str(tmp_path)}
    (tmp_path / "demo").mkdir()
    for folder in (tmp_path, tmp_path / "demo"):
        note = {"url": f"unix://{folder}/s", "token_file": f"{folder}/token"}
        (folder / "scheduler.json").write_text(json.dumps(note))
    assert scheduler_note(environ).folder == tmp_path
    with closing_fd(only_one(tmp_path / "demo" / SCHEDULER_LOCK, "held", tmp_path)):
        assert scheduler_note(environ).folder == tmp_path / "demo"
        with closing_fd(only_one(tmp_path / SCHEDULER_LOCK, "held", tmp_path)):
            assert scheduler_note(environ).folder == tmp_path
    assert scheduler_note(environ).folder == tmp_path


@contextmanager
def closing_fd(descriptor):
    yield
    os.close(descriptor)


def test_the_agents_socket_is_beside_the_scheduler_or_in_the_environment(tmp_path):
    environ = {"GPUSHARE_STATE": str(tmp_path)}
    (tmp_path / "agent.sock").touch()
    assert agent_socket(None, environ) == tmp_path / "agent.sock"
    assert agent_socket(None, {**environ, "GPUSHARE_AGENT_SOCKET": "/a"}).as_posix() == "/a"


def test_without_a_scheduler_there_is_no_session(tmp_path):
    with pytest.raises(Unavailable, match="no scheduler is known on this machine"):
        tool_session({"GPUSHARE_STATE": str(tmp_path)})


def test_a_kernel_inside_a_share_does_not_speak_for_the_kernel_around_it():
    env = {"GPUSHARE_LAUNCH": "k.1", "GPUSHARE_KERNEL_ID": "k", "GPUSHARE_AGENT": "/a", "A": "1"}
    assert is_inside_share(env)
    assert inherited(env) == {"GPUSHARE_LAUNCH": "k.1", "GPUSHARE_KERNEL_ID": "k", "A": "1"}
    assert not is_inside_share({"GPUSHARE_AGENT": "/a"})


@pytest.mark.parametrize(
    ("argv", "env", "name"),
    [
        (["/bin/papermill", "in/a.ipynb", "out.ipynb"], {}, "in/a.ipynb"),
        (["/bin/jupyter-console", "--kernel", "half"], {}, "jupyter-console"),
        (["/bin/voila", "."], {"SCRIPT_NAME": "/base/voila/render/a/b.ipynb"}, "a/b.ipynb"),
    ],
)
def test_a_kernel_is_named_after_its_notebook_or_its_program(argv, env, name, monkeypatch):
    monkeypatch.setattr(sys, "argv", argv)
    assert tool_name(env) == name
