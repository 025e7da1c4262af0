"""A Jupyter server in a pod (root inside), with scheduler and agent on the host. Needs no cluster:
the pod consists of real cgroups and namespaces (`tests.agent.pods`).
"""

from __future__ import annotations

import sys
from pathlib import Path

from tests.agent.pods import FakePod
from tests.story.jupyter_process import Server

__all__ = ["ServerInPod"]


class ServerInPod(Server):
    """`node_dir`: from `public_folder`; its part `run` has the agent's socket."""

    def __init__(self, node_dir: Path, pod: FakePod) -> None:
        super().__init__(node_dir / "server", remote=True)
        self._pod, self.socket = pod, node_dir / "run/agent.sock"

    @property
    def env(self) -> dict[str, str]:
        return super().env | {"GPUSHARE_AGENT_SOCKET": str(self.socket)}

    def start_agent(self, *options: str) -> None:
        super().start_agent(*options, "--users", "pods", "--socket", str(self.socket))

    def start_jupyter(self) -> None:
        self._start("jupyter", *self._pod.command(), sys.executable, "-m", "jupyter_server")
