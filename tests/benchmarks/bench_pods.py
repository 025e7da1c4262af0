"""Kernel start and cell gate of a Jupyter server in a pod, through the socket that is mounted
read-only into it. `python -m tests.benchmarks.bench_pods`, as root. Exit 1: a target was missed.

As `bench_jupyter`, with real cgroups, pid and mount namespaces, and an agent with `--users pods`.
Needs no cluster.
"""

from __future__ import annotations

import sys
from pathlib import Path

from tests.agent.pods import FakePod, pods_problem, public_folder
from tests.benchmarks.bench_jupyter import add_stock_kernelspec, gate, kernel_starts
from tests.benchmarks.machine import print_speed
from tests.story.jupyter_process import Server


class PodServer(Server):
    """The scheduler and the agent run on the host, the Jupyter server in a pod."""

    def __init__(self, folder: Path, pod: FakePod, socket: Path) -> None:
        super().__init__(folder, remote=True)
        self._pod, self._socket = pod, socket

    @property
    def env(self) -> dict[str, str]:
        return super().env | {"GPUSHARE_AGENT_SOCKET": str(self._socket)}

    def start_agent(self, *options: str) -> None:
        super().start_agent(*options, "--users", "pods", "--socket", str(self._socket))

    def start_jupyter(self) -> None:
        self._start("jupyter", *self._pod.command(), sys.executable, "-m", "jupyter_server")


def main() -> int:
    if problem := pods_problem():
        sys.stdout.write(f"not measured: {problem}\n")
        return 0
    with public_folder() as folder, FakePod(folder, root=True) as pod:
        server = PodServer(folder / "server", pod, folder / "run/agent.sock")
        add_stock_kernelspec(server)
        try:
            server.start()
            return 0 if all([kernel_starts(server), gate(server)]) else 1
        except BaseException:
            sys.stderr.write(server.logs())
            raise
        finally:
            server.stop()


if __name__ == "__main__":
    print_speed()
    sys.exit(main())
