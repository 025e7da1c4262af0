"""Duration of a restart: `python -m tests.benchmarks.bench_restart`.

From the start of the process until it is ready (it serves requests and has made decisions), with
1000 kernels running on 200 nodes of eight GPUs and 10 000 pending workloads in the store; on
SQLite, and on PostgreSQL if installed. The first of three starts is cold. `program` is a new
process with its imports; `service` is forked from one that has them.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

from jupyter_gpushare import messages as m
from jupyter_gpushare.scheduler.store.store import Store, WorkloadRow
from tests.benchmarks.machine import print_speed
from tests.scheduler.agents import node
from tests.scheduler.databases import running_cluster
from tests.scheduler.scheduler_forks import ForkServer

GPUS = 8
SHARES = (0.25, 0.5, 1, 2)
STARTS = 3


def policy(projects: int, nodes: int) -> str:
    quota = nodes * GPUS // projects
    lines = [
        f"  - {{name: p{i}, pools: {{default: {{gpu: {{quota: {quota}}}}}}}}}"
        for i in range(projects)
    ]
    lines += [
        f"  - {{name: full{i}, pools: {{default: {{gpu: {{quota: 0, limit: 0}}}}}}}}"
        for i in range(projects)
    ]
    return "projects:\n" + "\n".join(lines) + "\n"


def fill(url: str, options: argparse.Namespace) -> None:
    """The state as the service would have written it."""
    store = Store(url)
    with store.transaction() as write:
        for i in range(options.nodes):
            write.node(node(f"n{i:03}", GPUS))
        for i in range(options.kernels):
            place, gpu = divmod(i, GPUS // 2)
            _submitted(write, f"kernel-{i}", f"p{i % options.projects}", 0.5, i)
            on_node = f"n{place % options.nodes:03}"
            lease = _lease(f"kernel-{i}", f"p{i % options.projects}", on_node, gpu)
            write.granted([lease], 1000 + i)
            granted = m.Event(time=m.stamp(1000 + i), kind="granted", message="Granted 0.5 GPU.")
            write.events([(f"kernel-{i}", granted)])
        for i in range(options.waiting):
            _submitted(
                write,
                f"waiting-{i}",
                f"full{i % options.projects}",
                SHARES[i % len(SHARES)],
                5000 + i,
            )
        write.revision(1)
    store.close()


def _submitted(write: object, id_: str, project: str, gpu: float, when: int) -> None:
    request = m.WorkloadRequest(
        id=id_, project=project, pods=[m.PodRequest(name="kernel", gpu=gpu)]
    )
    write.submitted(WorkloadRow(request, "alice", project, 75, True, 1000 + when))
    text = f"Requested {gpu} GPU in project {project}."
    write.events([(id_, m.Event(time=m.stamp(1000 + when), kind="requested", message=text))])


def _lease(workload: str, project: str, name: str, gpu: int) -> m.LeaseBody:
    share, limit = m.Share(gpu=0.5), m.Share(gpu=1.0)
    return m.LeaseBody(
        id=f"{workload}@1",
        workload=workload,
        pod="kernel",
        kernel_id=None,
        name="",
        user="alice",
        project=project,
        node=name,
        pool="default",
        planned_gpus=[gpu],
        request_mib=40 * 1024,
        limit_mib=80 * 1024,
        request=share,
        limit=limit,
    )


def forked(folder: Path, url: str, file: Path) -> list[float]:
    fork_server, took = ForkServer(), []
    try:
        fork_server.start(folder / "warm").kill()  # after its imports
        for _ in range(STARTS):
            begun = time.perf_counter()
            child = fork_server.start(folder / "state", policy_file=str(file), db_url=url)
            took.append(round(time.perf_counter() - begun, 2))
            child.kill()
    finally:
        fork_server.close()
    return took


def whole(folder: Path, url: str, file: Path) -> float:
    begun = time.perf_counter()
    command = [
        sys.executable,
        "-m",
        "jupyter_gpushare.cli",
        "scheduler",
        "--port",
        "0",
        "--policy",
        str(file),
        "--db-url",
        url,
    ]
    process = subprocess.Popen(
        [*command, "--state-dir", str(folder / "state"), "--log-level", "error"],
        stdout=subprocess.PIPE,
    )
    assert process.stdout is not None
    while b"listening" not in (line := process.stdout.readline()):
        assert line, "it did not start"
    took = time.perf_counter() - begun
    os.kill(process.pid, signal.SIGTERM)
    process.communicate(timeout=60)
    return round(took, 2)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for name, number in (("nodes", 200), ("kernels", 1000), ("waiting", 10_000), ("projects", 20)):
        parser.add_argument(f"--{name}", type=int, default=number)
    options = parser.parse_args()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="gpushare-restart-")))
        file = folder / "gpushare.yaml"
        file.write_text(policy(options.projects, options.nodes))
        urls = {"sqlite": f"sqlite:///{folder}/x.sqlite"}
        cluster = stack.enter_context(running_cluster())
        if cluster is not None:
            urls["postgresql"] = stack.enter_context(cluster.database()).url
        for kind, url in urls.items():
            fill(url, options)
            service, program = forked(folder, url, file), whole(folder, url, file)
            result = {
                "database": kind,
                **vars(options),
                "service_s": service,
                "program_s": program,
                "cores": os.cpu_count(),
            }
            print(json.dumps(result))  # noqa: T201 - a command


if __name__ == "__main__":
    print_speed()
    main()
