"""The addresses of scheduler and agent from the environment, and token files of kernels."""

from __future__ import annotations

import logging
import os
import stat
import subprocess
from pathlib import Path

import pytest

from jupyter_gpushare.server_extension.clients.agent_client import AgentClient
from jupyter_gpushare.server_extension.extension import GpuShareExtension
from jupyter_gpushare.server_extension.kernels.token_files import KernelTokenFiles, hash_of
from jupyter_gpushare.server_extension.kernels.unregistered import unregistered_kernel

URL, SOCKET = "http://gpushare:8470", "/run/gpushare/agent.sock"


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    monkeypatch.setenv("GPUSHARE_SCHEDULER", URL)
    monkeypatch.setenv("GPUSHARE_AGENT_SOCKET", SOCKET)
    return monkeypatch


def test_both_addresses_come_from_the_environment(environment: pytest.MonkeyPatch):
    extension = GpuShareExtension()
    assert (extension.scheduler_url, extension.agent_socket) == (URL, SOCKET)
    configured = GpuShareExtension(scheduler_url="http://other:1", agent_socket="/other.sock")
    assert (configured.scheduler_url, configured.agent_socket) == ("http://other:1", "/other.sock")


def test_an_embedded_agent_has_its_own_socket(environment: pytest.MonkeyPatch):
    environment.delenv("GPUSHARE_SCHEDULER")
    assert GpuShareExtension().agent_socket == ""


@pytest.mark.parametrize(
    ("is_optional", "exists", "missing"),
    [(True, False, "this server's node shares no GPU"), (True, True, None), (False, False, None)],
    ids=["no agent", "an agent", "an embedded agent that starts"],
)
def test_whether_there_is_an_agent_to_wait_for(tmp_path: Path, is_optional, exists, missing):
    path = tmp_path / "agent.sock"
    if exists:
        path.touch()
    client = AgentClient(str(path), logging.getLogger(), is_optional=is_optional)
    assert client.missing == missing


def test_the_token_of_a_kernel_is_readable_by_its_user_alone(tmp_path: Path):
    files = KernelTokenFiles(tmp_path / "gpushare")
    path, token_hash = files.create("k")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert token_hash == hash_of(path.read_text())
    assert files.write("k", "of the next launch") == path
    assert path.read_text() == "of the next launch"
    files.remove("k"), files.remove("k")
    assert not path.exists()


@pytest.mark.parametrize("writable", [True, False])
def test_a_kernel_that_starts_without_an_agent_has_a_token_and_a_marker(tmp_path: Path, writable):
    """In the agent's folder, where it looks for unknown tokens; else in the server's."""
    state, own = tmp_path / "state", KernelTokenFiles(tmp_path / "own")
    state.mkdir()
    if not writable:
        (state / "tokens").touch()
    found = unregistered_kernel("k", str(state / "agent.sock"), {"GPUSHARE_SIMGPU": "x"}, own)
    path = Path(found.env["GPUSHARE_TOKEN_FILE"])
    assert path == (state / "tokens/k" if writable else tmp_path / "own/k")
    assert found.token_hash == hash_of(path.read_text())
    assert found.launch == found.env["GPUSHARE_LAUNCH"]
    assert found.launch.startswith("k.")
    assert found.env["GPUSHARE_SIMGPU"] == "x"
    again = unregistered_kernel("k", str(state / "agent.sock"), {}, own)
    assert (again.token_hash == found.token_hash) == writable, "one that the agent may know stays"


def test_files_of_kernels_that_a_killed_server_left(tmp_path: Path):
    """The file of a process that runs, and one that was just written, are kept."""
    files = KernelTokenFiles(tmp_path / "gpushare")
    files.remove_stale()
    old, used, new = (files.write(name, "token") for name in ("old", "used", "new"))
    for path in (old, used):
        os.utime(path, (0, 0))
    kernel = subprocess.Popen(["sleep", "60"], env={"GPUSHARE_TOKEN_FILE": str(used)})
    try:
        files.remove_stale()
        assert [old.exists(), used.exists(), new.exists()] == [False, True, True]
    finally:
        kernel.kill()
        kernel.wait()
