"""What is measured, part by part: each answers one question, alone, within its time, and gives rows as it goes.

A part runs in a process of its own (`python -m tests.gpu.parts NAME`, see measure.py): what hangs in a driver is killed with it, and what it
has said by then is kept.
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
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Any, Final

from node_agent.checkpointer import Checkpointer
from node_agent.devices.nvml import Nvml
from tests.gpu import bench

__all__ = ["PARTS", "Ask", "Part", "chosen"]

GIB: Final = 1 << 30
MIB: Final = 1 << 20
NOBODY: Final = 65534
Row = dict[str, Any]


@dataclass(frozen=True)
class Ask:
    """What a part is told: sizes are bytes; `total`: of GPU 0."""

    sizes: tuple[int, ...]
    total: int

    @property
    def small(self) -> int:
        return self.sizes[0]

    @property
    def middle(self) -> int:
        return self.sizes[min(1, len(self.sizes) - 1)]


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
    yield {"what": "driver", "is": nvml.driver_version()}
    yield {"what": "GPU memory, MiB (total, the driver's own)", "is": f"{nvml.memory(0).total // MIB}, {nvml.memory(0).reserved // MIB}"}
    yield {"what": "kernel", "is": f"{platform.release()} {platform.machine()}"}
    yield {"what": "Python, user", "is": f"{platform.python_version()}, uid {os.getuid()}"}
    yield {"what": "CPUs", "is": str(os.cpu_count())}
    yield {"what": "host memory", "is": ", ".join(Path("/proc/meminfo").read_text().splitlines()[:3])}
    for path in ("/proc/sys/kernel/yama/ptrace_scope", "/proc/self/cgroup", "/sys/fs/cgroup/memory.max", "/proc/driver/nvidia/version"):
        yield {"what": path, "is": _text(path)}
    for name in ("torch", "jax", "jaxlib", "cupy-cuda13x", "cupy-cuda12x", "nvidia-ml-py", "jupyter-server", "ipykernel"):
        yield {"what": name, "is": _version(name)}
    nvml.close()


def _text(path: str) -> str:
    try:
        return Path(path).read_text().strip().replace("\n", "; ") or "(empty)"
    except OSError as error:
        return f"({error.strerror})"


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
    """Cold: the helper has just been started; warm: it has worked before; driver: its calls alone, nothing of ours around them."""

    def run(_: Ask) -> Iterator[Row]:
        with bench.Worker() as worker:
            up, down = map(float, worker.do("copy", min(GIB, size)).split())
        for kind in ("cold", "warm", "driver"):
            with bench.Worker() as worker:
                worker.do("hold", size)
                hand = bench.Bare() if kind == "driver" else Checkpointer()
                if kind == "warm":
                    bench.round_trip(hand, worker, size)
                made = bench.round_trip(hand, worker, size)
                if isinstance(hand, Checkpointer):
                    hand.close()
            yield {"kind": kind, **dataclasses.asdict(made), "up": up, "down": down}

    return run


def _memory(ask: Ask) -> Iterator[Row]:
    hand = Checkpointer()
    yield from bench.host_memory(hand, ask.middle)
    hand.close()


def _framework(name: str) -> Callable[[Ask], Iterator[Row]]:
    def run(ask: Ask) -> Iterator[Row]:
        hand = Checkpointer()
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
    hand = Checkpointer()
    yield from bench.out_of_room(hand, ask.small, ask.total)
    hand.close()


def _neighbours(_: Ask) -> Iterator[Row]:
    hand = Checkpointer()
    for kernel_ms in (0, 1, 50, 400):
        taken = bench.neighbour_lock_ms(hand, kernel_ms=kernel_ms)
        yield {"kernel_ms": kernel_ms, "median_ms": round(statistics.median(taken), 2), "worst_ms": round(taken[-1], 2)}
    hand.close()


def _lag(ask: Ask) -> Iterator[Row]:
    """How long after a copy, and after a death, the driver's lists and free memory still show what was."""
    nvml, hand = Nvml(), Checkpointer()
    hand.version()

    def unlisted(pid: int) -> bool:
        return all(one.pid != pid for one in nvml.processes(0))

    for what in ("suspended", "killed"):
        idle = nvml.memory(0).used
        with bench.Worker() as worker:
            worker.do("hold", ask.small)
            seen = not unlisted(worker.pid)
            yield {"what": f"NVML lists the worker by the pid that it has here ({what})", "is": "yes" if seen else "no"}
            if what == "suspended":
                hand.lock(worker.pid, bench.LOCK_MS)
                hand.checkpoint(worker.pid)
            else:
                worker.end()
            begun = time.perf_counter()
            bench.waited(partial(unlisted, worker.pid))
            yield {"what": f"{what}: not listed after, ms", "is": _since(begun)}
            bench.waited(partial(_is_free, nvml, idle + ask.small // 10))
            yield {"what": f"{what}: 90 % of its memory free after, ms", "is": _since(begun)}
            if what == "suspended":
                hand.restore(worker.pid)
                hand.unlock(worker.pid)
    hand.close()
    nvml.close()


def _since(begun: float) -> str:
    taken = time.perf_counter() - begun
    return f"{taken * 1000:.1f}" if taken < bench.SHOWN_S else f"not within {bench.SHOWN_S:.0f} s"


def _is_free(nvml: Nvml, used: int) -> bool:
    return nvml.memory(0).used < used


def _rights(ask: Ask) -> Iterator[Row]:
    """Root's hand on another user's process; then that user's own hand on their own process."""
    mine, other = os.getuid(), NOBODY if os.getuid() == 0 else None
    yield {"who": f"uid {mine} on a process of uid {mine if other is None else other}", "outcome": _said(lambda: _round_of(other))}
    if other is not None:
        yield {"who": f"uid {other} on its own process", "outcome": _said(lambda: _by_itself(ask, other))}


def _said(work: Callable[[], str]) -> str:
    try:
        return work()
    except Exception as error:  # whatever it is, it is the answer
        return str(error)


def _round_of(user: int | None) -> str:
    hand = Checkpointer()
    try:
        with bench.Worker(user=user) as worker:
            worker.do("hold", 64 * MIB)
            return "right" if bench.round_trip(hand, worker, 64 * MIB).right else "**WRONG**"
    finally:
        hand.close()


def _by_itself(ask: Ask, user: int) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "tests.gpu.parts", "own", "--sizes", str(ask.small), "--total", str(ask.total)], user=user, group=user,
        extra_groups=[], capture_output=True, text=True, check=False, cwd=bench.ROOT, timeout=60,
    )  # fmt: skip
    return done.stdout.strip() or done.stderr.strip().rpartition("\n")[2]


def _own(_: Ask) -> Iterator[Row]:
    yield {"outcome": _round_of(None)}


HIDDEN: Final = """
import ctypes, os
c = ctypes.CDLL("libcuda.so.1"); n = ctypes.c_int()
os.environ["CUDA_VISIBLE_DEVICES"] = ""
print("hidden: cuInit", c.cuInit(0), "cuDeviceGetCount", c.cuDeviceGetCount(ctypes.byref(n)), n.value)
os.environ["CUDA_VISIBLE_DEVICES"] = {uuid!r}
print("then shown: cuInit", c.cuInit(0), "cuDeviceGetCount", c.cuDeviceGetCount(ctypes.byref(n)), n.value)
"""
HIDDEN_TORCH: Final = """
import os
os.environ["CUDA_VISIBLE_DEVICES"] = ""
import torch
print("hidden: torch.cuda.is_available", torch.cuda.is_available(), "device_count", torch.cuda.device_count())
os.environ["CUDA_VISIBLE_DEVICES"] = {uuid!r}
print("then shown: torch.cuda.is_available", torch.cuda.is_available(), "device_count", torch.cuda.device_count())
try: print("a tensor:", torch.ones(2, device="cuda").sum().item())
except Exception as error: print("a tensor:", type(error).__name__, error)
"""


def _hidden(_: Ask) -> Iterator[Row]:
    """Whether a process that looked for GPUs before it had a share sees its GPU afterwards."""
    nvml = Nvml()
    uuid = nvml.gpus[0].uuid
    nvml.close()
    for name, code in (("driver", HIDDEN), ("torch", HIDDEN_TORCH)):
        done = subprocess.run([sys.executable, "-c", code.format(uuid=uuid)], capture_output=True, text=True, check=False, timeout=50)
        for line in done.stdout.splitlines() or done.stderr.splitlines()[-1:]:
            yield {"by": name, "said": line}


def _polling(_: Ask) -> Iterator[Row]:
    """What one look costs with the driver's real calls (the steady polling makes one a second)."""
    nvml = Nvml()
    with bench.Worker() as one, bench.Worker() as two:
        for worker in (one, two):
            worker.do("hold", 32 * MIB)
        for name, call in (
            ("memory", lambda: nvml.memory(0)), ("processes", lambda: nvml.processes(0)), ("utilization", lambda: nvml.utilization(0)),
            ("process_utilization", lambda: nvml.process_utilization(0, 0)), ("recovery_action", lambda: nvml.recovery_action(0)),
        ):  # fmt: skip
            yield {"call": name, **_cost(call)}
    nvml.close()


def _cost(call: Callable[[], object], times: int = 50) -> Row:
    taken, cpu = [], time.process_time()
    try:
        for _ in range(times):
            begun = time.perf_counter()
            call()
            taken.append((time.perf_counter() - begun) * 1000)
    except Exception as error:  # not every driver has every call
        return {"problem": str(error)}
    return {
        "median_ms": round(statistics.median(taken), 3),
        "worst_ms": round(max(taken), 3),
        "cpu_ms": round((time.process_time() - cpu) * 1000 / times, 3),
    }


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
    Part("torch", "PyTorch: values right, Python answers while suspended", 30, 200, _framework("torch")),
    Part("story", "two notebooks share the GPU through the whole product", 120, 420, _story),
    Part("memory", "host memory per byte, and where it is charged", 25, 120, _memory),
    Part("torch-expandable", "PyTorch with expandable segments", 30, 200, _framework("torch-expandable")),
    Part("jax", "JAX", 30, 200, _framework("jax")),
    Part("cupy", "CuPy", 30, 200, _framework("cupy")),
    Part("caps", "the product's caps on the real frameworks", 40, 200, _caps),
    Part("lag", "how long NVML shows what is gone", 20, 100, _lag),
    Part("neighbours", "how long locking a neighbour takes, idle and busy", 40, 120, _neighbours),
    Part("rights", "who may suspend whom", 25, 120, _rights),
    Part("hidden", "whether a GPU shown later is seen", 15, 110, _hidden),
    Part("polling", "what a look costs", 10, 60, _polling),
    Part("room", "a restore without room", 30, 150, _room),
)
PARTS: Final = (*FIXED, *AFTER)


def chosen(sizes: tuple[int, ...]) -> list[Part]:
    """All parts in the order of what is wanted most: the largest copy comes last, a machine may be gone by then."""
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
    parts = {part.name: part.run for part in chosen(ask.sizes)} | {"own": _own}
    for row in parts[args.name](ask):
        sys.stdout.write(json.dumps(row) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
