"""The parts of the measurements: each answers one question within a time limit, and yields rows.

A part runs in a process of its own (`python -m tests.gpu.parts NAME`, see measure.py), which is
killed when the driver hangs; rows yielded before are kept.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import platform
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Final

from node_agent.devices.nvidia.checkpoint_client import CheckpointClient
from node_agent.devices.nvidia.nvml import Nvml
from tests.gpu import driver_facts, experiments, worker_client
from tests.gpu.sizes import GIB, MIB, Row, Sizes, text_of

__all__ = ["PARTS", "Part", "parts_for"]


@dataclass(frozen=True)
class Part:
    """`expected_s`: duration on an H200; after `limit_s` the part is killed."""

    name: str
    question: str
    expected_s: int
    limit_s: float
    run: Callable[[Sizes], Iterator[Row]]


def _machine(_: Sizes) -> Iterator[Row]:
    nvml = Nvml()
    yield {"what": "GPUs", "is": ", ".join(f"{gpu.model} {gpu.uuid}" for gpu in nvml.gpus)}
    yield {"what": "driver", "is": nvml.driver}
    yield {
        "what": "GPU memory, MiB (total, reserved by the driver)",
        "is": f"{nvml.memory(0).total // MIB}, {nvml.memory(0).reserved // MIB}",
    }
    yield {"what": "kernel", "is": f"{platform.release()} {platform.machine()}"}
    yield {"what": "Python, user", "is": f"{platform.python_version()}, uid {os.getuid()}"}
    yield {"what": "CPUs", "is": str(os.cpu_count())}
    yield {
        "what": "host memory",
        "is": ", ".join(Path("/proc/meminfo").read_text().splitlines()[:3]),
    }
    for path in (
        "/proc/sys/kernel/yama/ptrace_scope",
        "/proc/self/cgroup",
        "/sys/fs/cgroup/memory.max",
        "/proc/driver/nvidia/version",
    ):
        yield {"what": path, "is": text_of(path)}
    for name in (
        "torch",
        "jax",
        "jaxlib",
        "cupy-cuda13x",
        "cupy-cuda12x",
        "nvidia-ml-py",
        "jupyter-server",
        "ipykernel",
    ):
        yield {"what": name, "is": _version(name)}
    nvml.close()


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "not installed"


def _tiers(_: Sizes) -> Iterator[Row]:
    """Output of the product's self-test."""
    command = [sys.executable, "-m", "jupyter_gpushare.cli", "agent", "--self-test"]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, cwd=worker_client.ROOT
    )
    for line in (done.stdout + done.stderr).splitlines():
        yield {"line": line}
    yield {"line": f"(exit status {done.returncode})"}


def _copy_parts(size: int) -> Callable[[Sizes], Iterator[Row]]:
    """Cold: the checkpoint worker has just started; warm: it has made calls before; driver: the
    driver's calls alone.
    """

    def run(_: Sizes) -> Iterator[Row]:
        with worker_client.Worker() as worker:
            up, down = map(float, worker.do("copy", min(GIB, size)).split())
        for kind in ("cold", "warm", "driver"):
            with worker_client.Worker() as worker:
                worker.do("hold", size)
                client = experiments.DirectDriver() if kind == "driver" else CheckpointClient()
                if kind == "warm":
                    experiments.round_trip(client, worker, size)
                made = experiments.round_trip(client, worker, size)
                if isinstance(client, CheckpointClient):
                    client.close()
            yield {"kind": kind, **dataclasses.asdict(made), "up": up, "down": down}

    return run


def _memory(sizes: Sizes) -> Iterator[Row]:
    client = CheckpointClient()
    yield from experiments.host_memory(client, sizes.middle)
    client.close()


def _framework(name: str) -> Callable[[Sizes], Iterator[Row]]:
    def run(sizes: Sizes) -> Iterator[Row]:
        client = CheckpointClient()
        try:
            yield dataclasses.asdict(experiments.framework(client, sizes.small, name))
        except worker_client.Missing as error:
            yield {"name": name, "problem": f"not installed ({error})"}
        finally:
            client.close()

    return run


def _caps(sizes: Sizes) -> Iterator[Row]:
    for name in ("torch", "cupy", "jax"):
        try:
            yield from experiments.capped(name, sizes.total)
        except worker_client.Missing as error:
            yield {"framework": name, "what": "-", "outcome": f"not installed ({error})"}


def _room(sizes: Sizes) -> Iterator[Row]:
    client = CheckpointClient()
    yield from experiments.restore_without_memory(client, sizes.small, sizes.total)
    client.close()


def _neighbours(_: Sizes) -> Iterator[Row]:
    client = CheckpointClient()
    for kernel_ms in (0, 1, 50, 400):
        taken = experiments.lock_times_ms(client, kernel_ms=kernel_ms)
        yield {
            "kernel_ms": kernel_ms,
            "median_ms": round(statistics.median(taken), 2),
            "worst_ms": round(taken[-1], 2),
        }
    client.close()


def _two_notebooks(sizes: Sizes) -> Iterator[Row]:
    try:
        from tests.gpu.two_notebooks import run_two_notebooks
    except ImportError as error:
        yield {"what": "-", "is": f"not installed: {error.name}"}
        return
    yield from run_two_notebooks(sizes.total)


FIRST_PARTS: Final = (
    Part("machine", "description of the machine", 3, 60, _machine),
    Part("tiers", "output of the product's self-test", 15, 180, _tiers),
)
OTHER_PARTS: Final = (
    Part("torch", "PyTorch: values, and Python while suspended", 30, 200, _framework("torch")),
    Part(
        "two-notebooks",
        "two notebooks share the GPU with the whole product",
        120,
        420,
        _two_notebooks,
    ),
    Part("memory", "host memory per byte, and its cgroup", 25, 120, _memory),
    Part(
        "torch-expandable",
        "PyTorch with expandable segments",
        30,
        200,
        _framework("torch-expandable"),
    ),
    Part("jax", "JAX", 30, 200, _framework("jax")),
    Part("cupy", "CuPy", 30, 200, _framework("cupy")),
    Part("caps", "caps of the product with real frameworks", 40, 200, _caps),
    Part(
        "lag",
        "how long NVML lists suspended and ended processes",
        20,
        100,
        driver_facts.listing_lag,
    ),
    Part("neighbours", "duration of locking an idle or busy neighbour", 40, 120, _neighbours),
    Part("rights", "who may suspend whose processes", 25, 120, driver_facts.permissions),
    Part("hidden", "visibility of a GPU that appears later", 15, 110, driver_facts.late_gpu),
    Part("odd", "the driver with unusual processes", 20, 120, driver_facts.unusual_processes),
    Part("polling", "cost of a reading", 10, 60, driver_facts.polling_cost),
    Part("room", "a restore without enough GPU memory", 30, 150, _room),
)
PARTS: Final = (*FIRST_PARTS, *OTHER_PARTS)


def parts_for(sizes: tuple[int, ...]) -> list[Part]:
    """All parts by importance, with the largest copy last: the machine may be taken away."""
    copies = [
        Part(
            f"copies-{size / GIB:g}",
            f"suspend and resume of {size / GIB:g} GiB, every byte",
            15 + size * 3 // GIB,
            60 + size * 8 // GIB,
            _copy_parts(size),
        )
        for size in sizes
    ]
    return [
        *FIRST_PARTS,
        *copies[:2],
        *OTHER_PARTS[:2],
        *copies[2:3],
        *OTHER_PARTS[2:],
        *copies[3:],
    ]


def main() -> None:
    """Run one part; prints a JSON object per row."""
    parser = argparse.ArgumentParser()
    parser.add_argument("name")
    parser.add_argument("--sizes", required=True)
    parser.add_argument("--total", type=int, required=True)
    args = parser.parse_args()
    sizes = Sizes(tuple(int(size) for size in args.sizes.split(",")), args.total)
    parts = {part.name: part.run for part in parts_for(sizes.sizes)} | {
        "own": driver_facts.own_process
    }
    for row in parts[args.name](sizes):
        sys.stdout.write(json.dumps(row) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
