"""A server whose node shares no GPU (a Kubernetes node without an agent), configured by its
environment.
"""

from __future__ import annotations

import sys

import pytest

from tests.story.front_end import eventually
from tests.story.jupyter_process import Server

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]
NO_AGENT = "this server's node shares no GPU"


class PodServer(Server):
    """Remote by environment variables; its agent has a socket in a folder of its own."""

    def __init__(self, folder) -> None:
        super().__init__(folder, remote=True)
        self.socket = folder / "run/agent.sock"
        self.socket.parent.mkdir()

    @property
    def env(self) -> dict[str, str]:
        return super().env | {
            "GPUSHARE_SCHEDULER": f"http://127.0.0.1:{self.scheduler_port}",
            "GPUSHARE_AGENT_SOCKET": str(self.socket),
        }

    def _settings(self) -> dict[str, str]:
        return {"scheduler_token_file": str(self.state / "admin.token")}

    def start(self) -> PodServer:
        self.start_scheduler()
        self.start_jupyter()
        eventually(lambda: self.status()["scheduler"]["reachable"], "the scheduler is reached")
        return self


@pytest.fixture
def server(tmp_path):
    server = PodServer(tmp_path)
    try:
        yield server.start()
    finally:
        server.stop()
        sys.stdout.write(server.logs())


def test_kernels_run_without_a_gpu_until_the_node_has_an_agent(server: PodServer):
    nb, asks = server.notebook("plain", "a.ipynb"), server.notebook("half", "b.ipynb")
    assert nb.ok("print(1)") == "1\n"
    assert NO_AGENT in nb.ok("%gpu")
    assert asks.ok("print(2)") == "2\n", "no cell waits for an agent that is not there"
    eventually(lambda: NO_AGENT in asks.view["reason"]["message"], "the reason")
    assert server.status()["agent"]["problem"] == NO_AGENT
    assert server.status()["mode"] == "remote"
    server.start_agent("--socket", str(server.socket))
    asks.until("attached")
    assert "0.5" in asks.ok("%gpu"), "a kernel that began before the agent is known by its token"
    for one in (nb, asks):
        one.shut_down()
    server.nothing_is_left()
