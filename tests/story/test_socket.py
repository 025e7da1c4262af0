"""A Jupyter server with a scheduler on a unix socket works without tokens."""

from __future__ import annotations

import json
import sys

import psutil
import pytest

from tests.story.front_end import eventually
from tests.story.jupyter_process import POLICY, Server

pytestmark = pytest.mark.slow


class SocketServer(Server):
    """Separate processes for scheduler and agent; the scheduler has no TCP port."""

    @property
    def url(self) -> str:
        return f"unix://{self.state}/scheduler.sock"

    def _write_config(self) -> None:
        super()._write_config()
        file = self.folder / "config/jupyter_server_config.json"
        config = json.loads(file.read_text())
        config["GpuShareExtension"] = {"scheduler_url": self.url, "state_dir": str(self.state)}
        file.write_text(json.dumps(config))
        (self.folder / "gpushare.yaml").write_text(POLICY)

    def start_scheduler(self) -> None:
        command = (
            sys.executable,
            "-m",
            "jupyter_gpushare.cli",
            "scheduler",
            "--socket",
            str(self.state / "scheduler.sock"),
        )
        self._start(
            "scheduler",
            *command,
            "--policy",
            str(self.folder / "gpushare.yaml"),
            "--state-dir",
            str(self.state),
        )
        eventually(lambda: (self.state / "scheduler.json").exists(), "the scheduler listens")

    def start_agent(self) -> None:
        self.agent(
            "--scheduler",
            self.url,
            "--simulate",
            f"A100:{self.gpus}",
            "--state-dir",
            str(self.state),
        )


def test_a_notebook_gets_and_releases_its_share(tmp_path_factory: pytest.TempPathFactory):
    server = SocketServer(tmp_path_factory.mktemp("w"), remote=True)
    try:
        server.start()
        assert server.status()["mode"] == "remote"
        notebook = server.notebook("half", "a.ipynb")
        notebook.until("attached")
        assert (
            notebook.ok("from jupyter_gpushare import simgpu; simgpu.alloc('10GiB').nbytes >> 30")
            .strip()
            .endswith("10")
        )
        ports = [
            c.laddr
            for c in psutil.Process(server.processes["scheduler"].pid).net_connections("inet")
        ]
        assert ports == []
        assert not (server.state / "admin.token").exists()
        notebook.shut_down()
        server.nothing_is_left()
    finally:
        server.stop()
        sys.stdout.write(server.logs())
