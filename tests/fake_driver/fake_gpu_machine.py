"""A fake GPU machine: its GPUs, driver and faults, and its true state. Processes use it by two
environment variables.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from tests.fake_driver.build import libraries

__all__ = ["GIB", "MIB", "Faults", "FakeGpuMachine", "Worker"]

MIB: Final = 1 << 20
GIB: Final = 1 << 30
ROOT: Final = Path(__file__).parents[2]
CUDA_OF: Final = {
    535: 12020,
    550: 12040,
    560: 12060,
    565: 12070,
    570: 12080,
    575: 12090,
    580: 13000,
    590: 13010,
    595: 13020,
    610: 13030,
    615: 13040,
}
STATES: Final = {-1: "unknown", 0: "running", 1: "locked", 2: "checkpointed", 3: "failed"}


_one_at_a_time = threading.Lock()


class Faults:
    """Kinds of fault in state.h."""

    FAIL, FAIL_AFTER, LIE, HANG, HANG_AFTER, DELAY, VANISH, DIE, DIE_AFTER = range(1, 10)


class FakeGpuMachine:
    """One machine; processes with `environment()` use it."""

    def __init__(
        self,
        *,
        gpus: int = 1,
        driver: int = 580,
        memory: int = 80 * GIB,
        model: str = "NVIDIA A100-SXM4-80GB",
        context: int = 256 * MIB,
    ) -> None:
        self.driver, self.model, self.total = driver, model, memory
        self.folder = Path(tempfile.mkdtemp(prefix="gpushare-gpus-"))
        self.path = self.folder / "node"
        self.libraries = libraries(driver)
        self._c = ctypes.CDLL(str(self.libraries / "libfakedriver.so"))
        self._c.fake_used_by.restype = self._c.fake_used_on.restype = self._c.fake_calls.restype = (
            ctypes.c_uint64
        )
        if self._c.fake_create(
            str(self.path).encode(), driver, f"{driver}.65.06".encode(), CUDA_OF[driver]
        ):
            raise OSError(f"cannot make {self.path}")
        self.uuids: list[str] = []
        self._workers: list[Worker] = []
        for _ in range(gpus):
            self.add_gpu(model, memory)
        self.set("context_bytes", context)

    @classmethod
    def at(cls, path: Path, driver: int, memory: int, uuids: list[str]) -> FakeGpuMachine:
        """The machine of another process, for reading."""
        found = cls.__new__(cls)
        found.driver, found.model, found.total, found.path, found.uuids = (
            driver,
            "",
            memory,
            path,
            uuids,
        )
        found.libraries = libraries(driver)
        found._c = ctypes.CDLL(str(found.libraries / "libfakedriver.so"))
        found._c.fake_used_by.restype = found._c.fake_used_on.restype = (
            found._c.fake_calls.restype
        ) = ctypes.c_uint64
        return found

    def __enter__(self) -> FakeGpuMachine:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End all workers and delete the machine."""
        self.clear()
        for worker in self._workers:
            worker.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    def environment(self) -> dict[str, str]:
        """Environment of a process that uses this machine."""
        return {"GPUSHARE_FAKE_GPU": str(self.path), "LD_LIBRARY_PATH": str(self.libraries)}

    @contextlib.contextmanager
    def active(self) -> Iterator[None]:
        """This process uses the machine too. Libraries must be loaded by full path: the loader has
        already read its environment.
        """
        old = os.environ.get("GPUSHARE_FAKE_GPU")
        os.environ["GPUSHARE_FAKE_GPU"] = str(self.path)
        try:
            yield
        finally:
            if old is None:
                os.environ.pop("GPUSHARE_FAKE_GPU", None)
            else:
                os.environ["GPUSHARE_FAKE_GPU"] = old

    def _call(self, name: str, *args: Any) -> int:
        with _one_at_a_time:  # the library looks at one machine at a time
            if self._c.fake_use(str(self.path).encode()):
                raise OSError(f"no machine at {self.path}")
            return int(getattr(self._c, name)(*args))

    # ---- properties ------------------------------------------------------------------------------

    def add_gpu(self, model: str, memory: int, mig_parent: int = -1) -> int:
        """Add a GPU, or a MIG instance of one; returns its index."""
        name = uuid.uuid4()
        text = f"{'GPU' if mig_parent < 0 else 'MIG'}-{name}"
        index = self._call(
            "fake_add_gpu",
            text.encode(),
            name.bytes,
            model.encode(),
            ctypes.c_uint64(memory),
            mig_parent,
        )
        self.uuids.append(text)
        return index

    def set(self, name: str, value: int, gpu: int = -1) -> None:
        """lag_ms, context_bytes, remap_is_noop, masked_is_noop, persistence, spoils, lists_bare,
        copy_mib_s; of a GPU: reserved, healthy, mig_mode, mps, ...
        """
        if self._call("fake_set", name.encode(), gpu, ctypes.c_uint64(value)):
            raise KeyError(name)

    def occupy(self, pid: int, gpu: int, size: int, cgroup: str = "/sys/fs/cgroup") -> None:
        """Let a running process use memory."""
        self._call("fake_add_process", pid, gpu, ctypes.c_uint64(size), cgroup.encode())

    def process(self, pid: int, *, graphics: int = 0, sm_util: int = 0, busy_ms: int = 0) -> None:
        """Set the lists of a process (0 compute, 1 graphics, 2 both), and its utilization for a
        time.
        """
        if self._call("fake_set_process", pid, graphics, sm_util, ctypes.c_int64(busy_ms)):
            raise KeyError(pid)

    def event(self, gpu: int, kind: int, data: int) -> None:
        """Add an event (XID: kind 8, data is the code)."""
        self._call("fake_add_event", gpu, ctypes.c_uint64(kind), ctypes.c_uint64(data))

    # ---- faults ----------------------------------------------------------------------------------

    def fault(
        self,
        call: str,
        kind: int,
        code: int = 999,
        *,
        times: int = 1,
        skip: int = 0,
        delay_ms: int = 0,
        pid: int = 0,
    ) -> int:
        """Let the next `times` calls (-1: all) of this name fail, after `skip` good ones; `pid`:
        only those that concern this process. Returns the fault.
        """
        return self._call("fake_add_fault", call.encode(), kind, code, times, skip, delay_ms, pid)

    def hits(self, fault: int) -> int:
        """How often a fault occurred."""
        return self._call("fake_fault_hits", fault)

    def clear(self) -> None:
        """Remove all faults; hanging calls return."""
        self._call("fake_clear_faults")

    # ---- state -----------------------------------------------------------------------------------

    def state(self, pid: int) -> str:
        """running, locked, checkpointed, failed, bricked, unknown."""
        state = self._call("fake_state_of", pid)
        return "bricked" if state >= 100 else STATES[state]

    def set_state(self, pid: int, state: str) -> None:
        """Set the state that an interrupted step would leave."""
        self._call("fake_set_state", pid, {text: number for number, text in STATES.items()}[state])

    def used(self, gpu: int) -> int:
        """Bytes in use on a GPU."""
        return self._call("fake_used_on", gpu)

    def used_by(self, pid: int, gpu: int) -> int:
        """Bytes of a process on a GPU, with its context."""
        return self._call("fake_used_by", pid, gpu)

    def calls(self) -> int:
        """Number of calls of both libraries."""
        return self._call("fake_calls")

    def limits(self, cgroup: str, gpu: int) -> tuple[int, int] | None:
        """(soft, hard) of a cgroup path; None: never set."""
        soft, hard = ctypes.c_uint64(), ctypes.c_uint64()
        found = (
            self._call(
                "fake_limit_of", cgroup.encode(), gpu, ctypes.byref(soft), ctypes.byref(hard)
            )
            == 0
        )
        return (soft.value, hard.value) if found else None

    # ---- processes -------------------------------------------------------------------------------

    def worker(self, **environment: str) -> Worker:
        """Start a process that executes GPU commands; see memory_holder.py."""
        worker = Worker(self, environment)
        self._workers.append(worker)
        return worker


class Worker:
    """A process that executes commands; `do("alloc", 0, size)` returns the answer, `start` does not
    wait for it.
    """

    def __init__(self, machine: FakeGpuMachine, environment: dict[str, str]) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.fake_driver.memory_holder"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env=os.environ | machine.environment() | environment,
        )
        self.pid = self._process.pid

    def start(self, *words: object) -> None:
        """Send a command; `answer` returns its result."""
        assert self._process.stdin is not None
        print(*words, file=self._process.stdin, flush=True)

    def answer(self) -> str:
        """Its next answer. Raises EOFError when it has ended."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise EOFError(f"worker {self.pid} has ended")
        return line.strip()

    def do(self, *words: object) -> str:
        """Send a command, and wait for its answer."""
        self.start(*words)
        return self.answer()

    def is_alive(self) -> bool:
        """Whether it runs."""
        return self._process.poll() is None

    def kill(self) -> None:
        """SIGKILL, and wait for its end."""
        self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                with contextlib.suppress(BrokenPipeError):
                    stream.close()
