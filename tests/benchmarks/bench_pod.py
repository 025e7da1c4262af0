"""The cell gate and the start of kernels in a user's pod, through the mounted socket, on a real
node with simulated GPUs. `python -m tests.benchmarks.bench_pod`. Needs root and `make kube-assets`.

Targets: the gate at most 2 ms, a start at most 1.10 times that of the stock provisioner.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from tests.benchmarks.bench_jupyter import ASK, GATES
from tests.benchmarks.machine import compile_package, print_speed
from tests.kube.lab import Lab
from tests.kube.node import OneNodeCluster

STARTS = 20


def measure(lab: Lab) -> None:
    alice = lab.user("alice")
    notebook = alice.notebook("python3", "bench.ipynb")
    call = f"ratio({STARTS}, {alice.token!r})"
    code = f"from tests.benchmarks.pod_starts import ratio; print(*{call})"
    shown = notebook.ok(code, within=600)
    stock, plain, ratio = map(float, shown.split())
    sys.stdout.write(
        f"kernel start, median of {STARTS}: stock {stock:.3f} s, ours {plain:.3f} s,"
        f" {ratio:.3f} x stock\n"
    )
    alice.rest("POST", f"gpushare/api/kernels/{notebook.kernel_id}", {"gpu": 0.5})
    notebook.until("attached", within=120)
    median, p99 = map(float, notebook.ok(ASK.format(count=GATES)).split())
    sys.stdout.write(f"cell gate, {GATES} cells: median {median:.3f} ms, p99 {p99:.3f} ms\n")


def main() -> None:
    print_speed()
    compile_package()
    with tempfile.TemporaryDirectory() as folder:
        cluster = OneNodeCluster(Path(folder) / "node")
        lab = None
        try:
            lab = Lab(cluster.start())
            measure(lab.start())
        except BaseException:
            sys.stderr.write(lab.logs() if lab else cluster.control_plane.logs())
            raise
        finally:
            cluster.stop()


if __name__ == "__main__":
    main()
