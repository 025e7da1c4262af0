"""What is measured, part by part: each answers one question, alone, within its time, and gives rows
as it goes.

A part runs in a process of its own (`python -m tests.gpu.parts NAME`, see measure.py): what hangs
in a driver is killed with it, and what it has said by then is kept.
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
from tests.gpu import asides, bench
from tests.gpu.ask import GIB, MIB, Ask, Row, text_of

__all__ = ["PARTS", "Part", "chosen"]


@dataclass(frozen=True)
class Part:
    """`expected_s` on an H200, to plan by; after `limit_s` it is killed."""

    name: str
    question: str
    expected_s: int
    limit_s: float
    run: Callable[[Ask], Iterator[Row]]


def _machine(_: Ask) -> Iterator[Row]:
    nvml = Nvml()
    yield {"what": "GPUs", "is": ", ".join(f"{gpu.model} {gpu.uuid}" for gpu in nvml.gpus)}
    yield {"what": "driver", "is": nvml.driver}
    yield {
        "what": "GPU memory, MiB (total, the driver's own)",
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


def _tiers(_: Ask) -> Iterator[Row]:
    """The product's own self-test, in its own words."""
    command = [sys.executable, "-m", "jupyter_gpushare.cli", "agent", "--self-test"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=bench.ROOT)
    for line in (done.stdout + done.stderr).splitlines():
        yield {"line": line}
    yield {"line": f"(exit status {done.returncode})"}


def _copies(size: int) -> Callable[[Ask], Iterator[Row]]:
    """Cold: the helper has just been started; warm: it has worked before; driver: its calls alone,
    nothing of ours around them.
    """

    def run(_: Ask) -> Iterator[Row]:
        with bench.Worker() as worker:
            up, down = map(float, worker.do("copy", min(GIB, size)).split())
        for kind in ("cold", "warm", "driver"):
            with bench.Worker() as worker:
                worker.do("hold", size)
                hand = bench.Bare() if kind == "driver" else CheckpointClient()
                if kind == "warm":
                    bench.round_trip(hand, worker, size)
                made = bench.round_trip(hand, worker, size)
                if isinstance(hand, CheckpointClient):
                    hand.close()
            yield {"kind": kind, **dataclasses.asdict(made), "up": up, "down": down}

    return run


def _memory(ask: Ask) -> Iterator[Row]:
    hand = CheckpointClient()
    yield from bench.host_memory(hand, ask.middle)
    hand.close()


def _framework(name: str) -> Callable[[Ask], Iterator[Row]]:
    def run(ask: Ask) -> Iterator[Row]:
        hand = CheckpointClient()
        try:
            yield dataclasses.asdict(bench.framework(hand, ask.small, name))
        except bench.Missing as error:
            yield {"name": name, "problem": f"not installed ({error})"}
        finally:
            hand.close()

    return run


def _caps(ask: Ask) -> Iterator[Row]:
    for name in ("torch", "cupy", "jax"):
        try:
            yield from bench.capped(name, ask.total)
        except bench.Missing as error:
            yield {"framework": name, "what": "-", "outcome": f"not installed ({error})"}


def _room(ask: Ask) -> Iterator[Row]:
    hand = CheckpointClient()
    yield from bench.out_of_room(hand, ask.small, ask.total)
    hand.close()


def _neighbours(_: Ask) -> Iterator[Row]:
    hand = CheckpointClient()
    for kernel_ms in (0, 1, 50, 400):
        taken = bench.neighbour_lock_ms(hand, kernel_ms=kernel_ms)
        yield {
            "kernel_ms": kernel_ms,
            "median_ms": round(statistics.median(taken), 2),
            "worst_ms": round(taken[-1], 2),
        }
    hand.close()


def _story(ask: Ask) -> Iterator[Row]:
    try:
        from tests.gpu.story import tell
    except ImportError as error:
        yield {"what": "-", "is": f"not installed: {error.name}"}
        return
    yield from tell(ask.total)


FIXED: Final = (
    Part("machine", "which machine this is", 3, 60, _machine),
    Part("tiers", "what the product's self-test says here", 15, 180, _tiers),
)
AFTER: Final = (
    Part(
        "torch",
        "PyTorch: values right, Python answers while suspended",
        30,
        200,
        _framework("torch"),
    ),
    Part("story", "two notebooks share the GPU through the whole product", 120, 420, _story),
    Part("memory", "host memory per byte, and where it is charged", 25, 120, _memory),
    Part(
        "torch-expandable",
        "PyTorch with expandable segments",
        30,
        200,
        _framework("torch-expandable"),
    ),
    Part("jax", "JAX", 30, 200, _framework("jax")),
    Part("cupy", "CuPy", 30, 200, _framework("cupy")),
    Part("caps", "the product's caps on the real frameworks", 40, 200, _caps),
    Part("lag", "how long NVML shows what is gone", 20, 100, asides.lag),
    Part("neighbours", "how long locking a neighbour takes, idle and busy", 40, 120, _neighbours),
    Part("rights", "who may suspend whom", 25, 120, asides.rights),
    Part("hidden", "whether a GPU shown later is seen", 15, 110, asides.hidden),
    Part("odd", "what the driver makes of unusual processes", 20, 120, asides.odd),
    Part("polling", "what a look costs", 10, 60, asides.polling),
    Part("room", "a restore without room", 30, 150, _room),
)
PARTS: Final = (*FIXED, *AFTER)


def chosen(sizes: tuple[int, ...]) -> list[Part]:
    """All parts in the order of what is wanted most: the largest copy comes last, a machine may be
    gone by then.
    """
    copies = [
        Part(
            f"copies-{size / GIB:g}",
            f"suspend and resume of {size / GIB:g} GiB, every byte",
            15 + size * 3 // GIB,
            60 + size * 8 // GIB,
            _copies(size),
        )
        for size in sizes
    ]
    return [*FIXED, *copies[:2], *AFTER[:2], *copies[2:3], *AFTER[2:], *copies[3:]]


def main() -> None:
    """One part, a JSON object per line."""
    parser = argparse.ArgumentParser()
    parser.add_argument("name")
    parser.add_argument("--sizes", required=True)
    parser.add_argument("--total", type=int, required=True)
    args = parser.parse_args()
    ask = Ask(tuple(int(size) for size in args.sizes.split(",")), args.total)
    parts = {part.name: part.run for part in chosen(ask.sizes)} | {"own": asides.own}
    for row in parts[args.name](ask):
        sys.stdout.write(json.dumps(row) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
