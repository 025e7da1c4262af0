"""What else only a real driver can tell: who may suspend whom, what it lists and when, what it
makes of unusual processes, what a look costs.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Final

from node_agent.devices.nvidia.checkpoint_client import CheckpointClient
from node_agent.devices.nvidia.nvml import Nvml
from tests.gpu import bench
from tests.gpu.ask import MIB, Ask, Row, text_of

__all__ = ["hidden", "lag", "odd", "own", "polling", "rights"]

NOBODY: Final = 65534


def lag(ask: Ask) -> Iterator[Row]:
    """How long after a copy, and after a death, the driver's lists and free memory still show what
    was.
    """
    nvml, hand = Nvml(), CheckpointClient()
    hand.version()
    yield {
        "what": "memory in use that nobody is named for, nobody here, MiB",
        "is": _nameless(nvml),
    }
    with bench.Worker() as worker:
        worker.do("hold", ask.small)
        yield {"what": "the same, one process here, MiB", "is": _nameless(nvml)}

    def unlisted(pid: int) -> bool:
        return all(one.pid != pid for one in nvml.processes(0))

    for what in ("suspended", "killed"):
        idle = nvml.memory(0).used
        with bench.Worker() as worker:
            worker.do("hold", ask.small)
            seen = not unlisted(worker.pid)
            yield {
                "what": f"NVML lists the worker by the pid that it has here ({what})",
                "is": "yes" if seen else "no",
            }
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


def _nameless(nvml: Nvml) -> str:
    held = sum(one.size or 0 for one in nvml.processes(0))
    return f"{(nvml.memory(0).used - held) / MIB:.0f} (and {nvml.memory(0).reserved / MIB:.0f} reserved)"


def _since(begun: float) -> str:
    taken = time.perf_counter() - begun
    return f"{taken * 1000:.1f}" if taken < bench.SHOWN_S else f"not within {bench.SHOWN_S:.0f} s"


def _is_free(nvml: Nvml, used: int) -> bool:
    return nvml.memory(0).used < used


def rights(ask: Ask) -> Iterator[Row]:
    """Root's hand on another user's process; then that user's own hand on their own process."""
    with tempfile.TemporaryDirectory() as folder:
        home = _open_home(Path(folder)) if os.getuid() == 0 else bench.Home()
        who = os.getuid() if home.user is None else home.user
        yield {
            "who": f"uid {os.getuid()} on a process of uid {who} (by {home.python})",
            "outcome": _said(lambda: _round_of(home)),
        }
        if home.user is not None:
            yield {
                "who": f"uid {who} on its own process",
                "outcome": _said(lambda: _by_itself(ask, home)),
            }


def _open_home(folder: Path) -> bench.Home:
    """A copy of the tree that everybody may read, and a Python that everybody may run."""
    folder.chmod(0o755)
    for name in ("tests", "node_agent", "jupyter_gpushare"):
        shutil.copytree(
            bench.ROOT / name,
            folder / name,
            ignore=shutil.ignore_patterns("labextension", "node_modules", "__pycache__"),
        )
    for python in (sys.executable, "/usr/bin/python3"):
        with contextlib.suppress(OSError, subprocess.SubprocessError):
            subprocess.run([python, "-c", ""], user=NOBODY, check=True, timeout=20)
            return bench.Home(python, folder, NOBODY)
    return bench.Home(sys.executable, folder, NOBODY)


def _said(work: Callable[[], str]) -> str:
    try:
        return work()
    except Exception as error:  # whatever it is, it is the answer
        return str(error)


def _round_of(home: bench.Home) -> str:
    hand = CheckpointClient()
    try:
        with bench.Worker(home=home) as worker:
            worker.do("hold", 64 * MIB)
            return "right" if bench.round_trip(hand, worker, 64 * MIB).right else "**WRONG**"
    finally:
        hand.close()


def _by_itself(ask: Ask, home: bench.Home) -> str:
    done = subprocess.run(
        [
            home.python,
            "-m",
            "tests.gpu.parts",
            "own",
            "--sizes",
            str(ask.small),
            "--total",
            str(ask.total),
        ],
        user=home.user,
        group=home.user,
        extra_groups=[],
        capture_output=True,
        text=True,
        check=False,
        cwd=home.folder,
        timeout=60,
    )
    return done.stdout.strip() or done.stderr.strip().rpartition("\n")[2]


def own(_: Ask) -> Iterator[Row]:
    yield {"outcome": _round_of(bench.Home())}


def odd(_: Ask) -> Iterator[Row]:
    """Processes that are no plain users of a GPU: what NVML and the driver make of them. Each has a
    worker of its own, which may be spoilt.
    """
    nvml, hand = Nvml(), CheckpointClient()
    for what, kind, word in (
        ("it has only counted the GPUs", "counter", ""),
        ("its forked child", "driver", "fork"),
        ("it has unified memory", "driver", "managed"),
    ):
        with bench.Worker(kind) as worker:
            pid = worker.pid
            if kind == "driver":
                worker.do("hold", 64 * MIB)
                before = _mapped(pid)
            if word == "fork":
                pid = int(worker.do("fork"))
            if word == "managed":
                worker.do("managed", 64 * MIB)
                yield {
                    "process": what,
                    "asked": "its maps of /dev/nvidia-uvm",
                    "answer": f"before {before}, with it {_mapped(pid)}",
                }
            listed = {one.pid: one.size for one in nvml.processes(0)}
            yield {
                "process": what,
                "asked": "NVML lists it",
                "answer": f"yes, {listed[pid]} bytes" if pid in listed else "no",
            }
            for step, answer in bench.tried(hand, pid):
                yield {"process": what, "asked": step, "answer": answer}
            if kind == "driver":
                yield {
                    "process": what,
                    "asked": "the worker's bytes",
                    "answer": _said(lambda one=worker: one.do("check", within=20)),
                }
    hand.close()
    nvml.close()


def _mapped(pid: int) -> str:
    """How many of its mappings are of /dev/nvidia-uvm, by what may be done in them."""
    rights = [
        line.split()[1]
        for line in text_of(f"/proc/{pid}/maps").split("; ")
        if line.endswith("nvidia-uvm")
    ]
    return ", ".join(f"{rights.count(one)} x {one}" for one in sorted(set(rights))) or "none"


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


def hidden(_: Ask) -> Iterator[Row]:
    """Whether a process that looked for GPUs before it had a share sees its GPU afterwards."""
    nvml = Nvml()
    uuid = nvml.gpus[0].uuid
    nvml.close()
    for name, code in (("driver", HIDDEN), ("torch", HIDDEN_TORCH)):
        done = subprocess.run(
            [sys.executable, "-c", code.format(uuid=uuid)],
            capture_output=True,
            text=True,
            check=False,
            timeout=50,
        )
        for line in done.stdout.splitlines() or done.stderr.splitlines()[-1:]:
            yield {"by": name, "said": line}


def polling(_: Ask) -> Iterator[Row]:
    """What one look costs with the driver's real calls (the steady polling makes one a second)."""
    nvml = Nvml()
    with bench.Worker() as one, bench.Worker() as two:
        for worker in (one, two):
            worker.do("hold", 32 * MIB)
        for name, call in (
            ("memory", lambda: nvml.memory(0)),
            ("processes", lambda: nvml.processes(0)),
            ("utilization", lambda: nvml.utilization(0)),
            ("process_utilization", lambda: nvml.process_utilization(0, 0)),
            ("recovery_action", lambda: nvml.recovery_action(0)),
        ):
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
