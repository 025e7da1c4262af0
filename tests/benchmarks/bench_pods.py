"""Kernel start and cell gate of a Jupyter server in a pod, through the socket that is mounted
read-only into it. `python -m tests.benchmarks.bench_pods`, as root. Exit 1: a target was missed.

As `bench_jupyter`, with real cgroups, pid and mount namespaces, and an agent with `--users pods`.
Needs no cluster.
"""

from __future__ import annotations

import sys

from tests.agent.pods import FakePod, pods_problem, public_folder
from tests.benchmarks.bench_jupyter import add_stock_kernelspec, gate, kernel_starts
from tests.benchmarks.machine import compile_package, print_speed
from tests.story.pod_server import ServerInPod


def main() -> int:
    if problem := pods_problem():
        sys.stdout.write(f"not measured: {problem}\n")
        return 0
    with public_folder() as folder, FakePod(folder, root=True) as pod:
        server = ServerInPod(folder, pod)
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
    compile_package()
    sys.exit(main())
