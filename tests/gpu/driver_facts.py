"""Further facts about a real driver: permissions, process lists, unusual processes, costs."""

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
from tests.gpu import experiments, worker_client
from tests.gpu.sizes import MIB, Row, Sizes, text_of

__all__ = [
    "late_gpu",
    "listing_lag",
    "unusual_processes",
    "own_process",
    "polling_cost",
    "permissions",
]

NOBODY: Final = 65534


def listing_lag(sizes: Sizes) -> Iterator[Row]:
    """How long after a copy or the end of a process the driver still lists it and its memory."""
    nvml, client = Nvml(), CheckpointClient()
    client.version()
    yield {"what": "unattributed memory without processes, MiB", "is": _unattributed(nvml)}
    with worker_client.Worker() as worker:
        worker.do("hold", sizes.small)
        yield {"what": "unattributed memory with one process, MiB", "is": _unattributed(nvml)}

    def unlisted(pid: int) -> bool:
        return all(one.pid != pid for one in nvml.processes(0))

    for what in ("suspended", "killed"):
        idle = nvml.memory(0).used
        with worker_client.Worker() as worker:
            worker.do("hold", sizes.small)
            seen = not unlisted(worker.pid)
            yield {
                "what": f"NVML lists the worker by its pid in this namespace ({what})",
                "is": "yes" if seen else "no",
            }
            if what == "suspended":
                client.lock(worker.pid, experiments.LOCK_MS)
                client.checkpoint(worker.pid)
            else:
                worker.end()
            begun = time.perf_counter()
            experiments.wait_until(partial(unlisted, worker.pid))
            yield {"what": f"{what}: time until unlisted, ms", "is": _since(begun)}
            experiments.wait_until(partial(_is_free, nvml, idle + sizes.small // 10))
            yield {
                "what": f"{what}: time until 90 % of its memory is free, ms",
                "is": _since(begun),
            }
            if what == "suspended":
                client.restore(worker.pid)
                client.unlock(worker.pid)
    client.close()
    nvml.close()


def _unattributed(nvml: Nvml) -> str:
    held = sum(one.size or 0 for one in nvml.processes(0))
    memory = nvml.memory(0)
    return f"{(memory.used - held) / MIB:.0f} (and {memory.reserved / MIB:.0f} reserved)"


def _since(begun: float) -> str:
    taken = time.perf_counter() - begun
    return (
        f"{taken * 1000:.1f}"
        if taken < experiments.LISTED_S
        else f"not within {experiments.LISTED_S:.0f} s"
    )


def _is_free(nvml: Nvml, used: int) -> bool:
    return nvml.memory(0).used < used


def permissions(sizes: Sizes) -> Iterator[Row]:
    """Root with a process of another user; then that user with a process of their own."""
    with tempfile.TemporaryDirectory() as folder:
        environment = (
            _open_environment(Path(folder))
            if os.getuid() == 0
            else worker_client.WorkerEnvironment()
        )
        who = os.getuid() if environment.user is None else environment.user
        yield {
            "who": f"uid {os.getuid()} on a process of uid {who} (by {environment.python})",
            "outcome": _result_text(lambda: _round_trip(environment)),
        }
        if environment.user is not None:
            yield {
                "who": f"uid {who} on its own process",
                "outcome": _result_text(lambda: _as_own_user(sizes, environment)),
            }


def _open_environment(folder: Path) -> worker_client.WorkerEnvironment:
    """A copy of the tree that all users can read, and a Python that they can run."""
    folder.chmod(0o755)
    for name in ("tests", "node_agent", "jupyter_gpushare"):
        shutil.copytree(
            worker_client.ROOT / name,
            folder / name,
            ignore=shutil.ignore_patterns("labextension", "node_modules", "__pycache__"),
        )
    for python in (sys.executable, "/usr/bin/python3"):
        with contextlib.suppress(OSError, subprocess.SubprocessError):
            subprocess.run([python, "-c", ""], user=NOBODY, check=True, timeout=60)
            return worker_client.WorkerEnvironment(python, folder, NOBODY)
    return worker_client.WorkerEnvironment(sys.executable, folder, NOBODY)


def _result_text(work: Callable[[], str]) -> str:
    try:
        return work()
    except Exception as error:  # any error is a result
        return str(error)


def _round_trip(environment: worker_client.WorkerEnvironment) -> str:
    client = CheckpointClient()
    try:
        with worker_client.Worker(environment=environment) as worker:
            worker.do("hold", 64 * MIB)
            return (
                "right" if experiments.round_trip(client, worker, 64 * MIB).right else "**WRONG**"
            )
    finally:
        client.close()


def _as_own_user(sizes: Sizes, environment: worker_client.WorkerEnvironment) -> str:
    done = subprocess.run(
        [
            environment.python,
            "-m",
            "tests.gpu.parts",
            "own",
            "--sizes",
            str(sizes.small),
            "--total",
            str(sizes.total),
        ],
        user=environment.user,
        group=environment.user,
        extra_groups=[],
        capture_output=True,
        text=True,
        check=False,
        cwd=environment.folder,
        timeout=60,
    )
    return done.stdout.strip() or done.stderr.strip().rpartition("\n")[2]


def own_process(_: Sizes) -> Iterator[Row]:
    yield {"outcome": _round_trip(worker_client.WorkerEnvironment())}


def unusual_processes(_: Sizes) -> Iterator[Row]:
    """NVML and the driver with unusual processes, each with a worker of its own, which may be
    damaged.
    """
    nvml, client = Nvml(), CheckpointClient()
    for what, kind, word in (
        ("it only counted the GPUs", "counter", ""),
        ("its forked child", "driver", "fork"),
        ("it has unified memory", "driver", "managed"),
    ):
        with worker_client.Worker(kind) as worker:
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
                    "asked": "its mappings of /dev/nvidia-uvm",
                    "answer": f"before {before}, with it {_mapped(pid)}",
                }
            listed = {one.pid: one.size for one in nvml.processes(0)}
            yield {
                "process": what,
                "asked": "NVML lists it",
                "answer": f"yes, {listed[pid]} bytes" if pid in listed else "no",
            }
            for step, answer in experiments.try_each_step(client, pid):
                yield {"process": what, "asked": step, "answer": answer}
            if kind == "driver":
                yield {
                    "process": what,
                    "asked": "the worker's bytes",
                    "answer": _result_text(lambda one=worker: one.do("check", within=20)),
                }
    client.close()
    nvml.close()


def _mapped(pid: int) -> str:
    """Number of its mappings of /dev/nvidia-uvm, by permissions."""
    permissions = [
        line.split()[1]
        for line in text_of(f"/proc/{pid}/maps").split("; ")
        if line.endswith("nvidia-uvm")
    ]
    return (
        ", ".join(f"{permissions.count(one)} x {one}" for one in sorted(set(permissions))) or "none"
    )


HIDDEN: Final = """
import ctypes, os
c = ctypes.CDLL("libcuda.so.1"); n = ctypes.c_int()
os.environ["CUDA_VISIBLE_DEVICES"] = ""
def count(): return c.cuInit(0), "cuDeviceGetCount", c.cuDeviceGetCount(ctypes.byref(n)), n.value
print("hidden: cuInit", *count())
os.environ["CUDA_VISIBLE_DEVICES"] = {uuid!r}
print("then visible: cuInit", *count())
"""
HIDDEN_TORCH: Final = """
import os
os.environ["CUDA_VISIBLE_DEVICES"] = ""
import torch
def state(): return torch.cuda.is_available(), "device_count", torch.cuda.device_count()
print("hidden: torch.cuda.is_available", *state())
os.environ["CUDA_VISIBLE_DEVICES"] = {uuid!r}
print("then visible: torch.cuda.is_available", *state())
try: print("a tensor:", torch.ones(2, device="cuda").sum().item())
except Exception as error: print("a tensor:", type(error).__name__, error)
"""


def late_gpu(_: Sizes) -> Iterator[Row]:
    """Whether a process that listed the GPUs before it had a share sees its GPU afterwards."""
    nvml = Nvml()
    uuid = nvml.gpus[0].uuid
    nvml.close()
    for name, code in (("driver", HIDDEN), ("torch", HIDDEN_TORCH)):
        done = subprocess.run(
            [sys.executable, "-c", code.format(uuid=uuid)],
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        for line in done.stdout.splitlines() or done.stderr.splitlines()[-1:]:
            yield {"by": name, "said": line}


def polling_cost(_: Sizes) -> Iterator[Row]:
    """Cost of a reading with real driver calls (the agent makes one per second)."""
    nvml = Nvml()
    with worker_client.Worker() as one, worker_client.Worker() as two:
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
    except Exception as error:  # some drivers lack some calls
        return {"problem": str(error)}
    return {
        "median_ms": round(statistics.median(taken), 3),
        "worst_ms": round(max(taken), 3),
        "cpu_ms": round((time.process_time() - cpu) * 1000 / times, 3),
    }
