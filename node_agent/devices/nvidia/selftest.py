"""Which capability tiers this node has, found out by trying, and for each missing one why and what
to do.

A toy process holds a few MiB on a GPU, is suspended and resumed, and says whether its bytes are
right and which GPU it finds itself on. It is no child of the helper that suspends it, as kernels
are none: what Yama or a sandbox forbids there is forbidden here. Everything has a deadline: the toy
is killed, and a call that hangs costs the helper its life (`checkpointer`), never the agent. It
takes no room from people who compute: without room, and while they do, what was proven before
counts, else the test waits.
"""

from __future__ import annotations

import contextlib
import os
import select
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Protocol

from ...system.cgroups import Cgroups
from ...system.processes import MARKER, SELF_TEST
from .checkpoint_client import CheckpointClient, OutcomeUnknown
from .cuda import CudaError, ProcessState
from .mps import mps_runs

__all__ = ["ADVICE", "INSTANCES", "SelfTest", "SelfTestGpu", "advised", "tested", "waits_for_room"]

READY_S: Final = 60.0
"""cuInit and a first context on a machine whose GPUs sleep."""
LOCK_MS: Final = 10_000
ROOM_MIB: Final = 1024
"""For the toy: a CUDA context takes 300 to 600 MiB."""
NO_ROOM: Final = (
    "no GPU has the room for a test process (1 GiB); it is tested as soon as there is room"
)
OUT_OF_MEMORY: Final = "CUDA_ERROR_OUT_OF_MEMORY"
INSTANCES: Final = "instances of a GPU (MIG) cannot be checkpointed; turn MIG off, or go without: there, who has to make room is told and restarted"
NEEDS_OBSERVE: Final = "it needs the tier observe: "
OTHER_NUMBERS: Final = (
    "the driver names processes by the machine's pids, and this agent lives in a pid namespace of its own, so whose memory is whose cannot be "
    "told; give it the machine's (hostPID: true, `docker run --pid=host`)"
)
FIRST_NAMESPACE: Final = "pid:[4026531836]"
"""PROC_PID_INIT_INO of the Linux kernel."""
NEEDS_SUSPEND: Final = "it needs the tier suspend: "
ADVICE: Final = {
    "observe": "update the NVIDIA driver to 535 or newer, and let the agent see the host's processes (hostPID in a container)",
    "cooperate": "start kernels with the gpushare provisioner",
    "limit": "driver 615 or newer, and a delegated cgroup (Delegate=yes in the agent's service)",
    "suspend": "driver 570 or newer on x86_64, no MPS and no MIG, the agent as the kernels' user or root",
    "relocate": "two GPUs of one model and driver 580 or newer; until then kernels are restarted when they have to move",
}
"""What to do when the reason itself does not say it."""
FORBIDDEN: Final = frozenset({304, 800})


class SelfTestGpu(Protocol):
    """What is asked of a device."""

    @property
    def index(self) -> int: ...
    @property
    def uuid(self) -> str: ...
    @property
    def model(self) -> str: ...
    @property
    def mig(self) -> bool: ...
    @property
    def minor(self) -> int: ...


class _LimitProbe(Protocol):
    def problem(self) -> str: ...
    def try_out(self, cgroup: str) -> None: ...
    def clear(self, cgroup: str) -> None: ...


@dataclass(frozen=True, slots=True)
class SelfTest:
    """What there is to try. `unlisted`: why the driver does not say who uses the GPUs, "" when it
    does; `free`: MiB per GPU index; `proven`: tiers that a test has shown since this machine was
    started; `in_use`: kernels hold memory, so what is proven is not tried again.
    """

    gpus: Sequence[SelfTestGpu]
    checkpointer: CheckpointClient
    limits: _LimitProbe
    cgroups: Cgroups
    unlisted: str
    free: Mapping[int, int]
    proven: frozenset[str] = field(default_factory=frozenset)
    in_use: bool = False
    pids: Callable[[int], Collection[int] | None] = lambda _: None
    """Whom the driver lists on a GPU now; None: it does not say."""


def tested(bench: SelfTest) -> dict[str, str]:
    """For each tier "" or why it is missing. Blocks for seconds; never raises for what the machine
    does.
    """
    observe = _observe(bench)
    suspend = f"{NEEDS_OBSERVE}{observe}" if observe else _suspend(bench)
    return {
        "observe": observe,
        "cooperate": "",
        "limit": _limit(bench),
        "suspend": suspend,
        "relocate": f"{NEEDS_SUSPEND}{suspend}" if suspend else _relocate(bench),
    }


def advised(tier: str, problem: str) -> tuple[str, str]:
    """A problem as (why, what to do). A reason that says what to do says it after a semicolon."""
    why, _, what = problem.partition("; ")
    return why, what or ADVICE.get("suspend" if why.startswith(NEEDS_SUSPEND) else tier, "")


def waits_for_room(problems: Iterable[str]) -> bool:
    """Whether one of them goes when there is room on a GPU."""
    return any(problem.endswith(NO_ROOM) for problem in problems)


# ---- observe -------------------------------------------------------------------------------------


def _observe(bench: SelfTest) -> str:
    if bench.unlisted:
        return f"the driver does not say who uses the GPUs ({bench.unlisted})"
    whole = [gpu for gpu in bench.gpus if not gpu.mig]
    if is_first_namespace() or not whole:
        return ""
    gpu = _roomiest(bench, whole)[0]
    if bench.free.get(gpu.index, 0) < ROOM_MIB:
        return ""
    try:
        with _SelfTestWorker([gpu.uuid]) as toy:
            listed = bench.pids(gpu.index)
            return "" if listed is None or toy.pid in listed else OTHER_NUMBERS
    except _WorkerFailed:
        return ""  # the tier suspend says what is wrong with it


def is_first_namespace(proc: Path = Path("/proc")) -> bool:
    """Whether this process sees all of the machine's processes. The driver of NVIDIA names them as
    they are called there (NVIDIA/nvidia-docker issues 179 and 1483).
    """
    try:
        return os.readlink(proc / "self/ns/pid") == FIRST_NAMESPACE
    except OSError:
        return False


# ---- limit ---------------------------------------------------------------------------------------


def _limit(bench: SelfTest) -> str:
    problem = bench.limits.problem()
    if problem:
        return problem
    leaf = bench.cgroups.make(f"self-test.{os.getpid()}")
    if not leaf:
        return bench.cgroups.problem or "no cgroup could be made"
    try:
        bench.limits.try_out(leaf)
    finally:
        bench.limits.clear(leaf)
        bench.cgroups.remove(leaf)
    return bench.limits.problem()


# ---- suspend -------------------------------------------------------------------------------------


def _suspend(bench: SelfTest) -> str:
    whole = [gpu for gpu in bench.gpus if not gpu.mig]
    if not whole:
        return INSTANCES
    problem = bench.checkpointer.problem()
    if problem:
        return problem
    if mps_runs({gpu.minor for gpu in bench.gpus if gpu.minor >= 0}):
        return "an MPS server runs on this machine, and processes under MPS cannot be checkpointed; stop it (`echo quit | nvidia-cuda-mps-control`)"
    first = _roomiest(bench, whole)[0]
    return _tried(bench, "suspend", first, first, ())


def _relocate(bench: SelfTest) -> str:
    whole = [gpu for gpu in bench.gpus if not gpu.mig]
    models: dict[str, list[SelfTestGpu]] = {}
    for gpu in whole:
        models.setdefault(gpu.model, []).append(gpu)
    alike = max(models.values(), key=len, default=[])
    if len(alike) < 2:
        return "there are no two GPUs of one model on this machine"
    if not bench.checkpointer.can_remap():
        return "the driver cannot restore on another GPU; that came with driver 580"
    if len(whole) < len(bench.gpus):
        return "some GPUs are cut into instances (MIG), and a move has to name every GPU; turn MIG off on all"
    alike = _roomiest(bench, alike)
    return _tried(bench, "relocate", alike[0], alike[1], _rotation(bench.gpus, alike))


def _roomiest(bench: SelfTest, gpus: Sequence[SelfTestGpu]) -> list[SelfTestGpu]:
    return sorted(gpus, key=lambda gpu: (-bench.free.get(gpu.index, 0), gpu.index))


def _tried(
    bench: SelfTest, tier: str, old: SelfTestGpu, new: SelfTestGpu, pairs: Sequence[tuple[str, str]]
) -> str:
    """A proof counts where trying would take room that people need."""
    room = all(bench.free.get(gpu.index, 0) >= ROOM_MIB for gpu in (old, new))
    problem = NO_ROOM
    if room and not (tier in bench.proven and bench.in_use):
        problem = _round_trip(bench, old, new, pairs)
    return "" if problem == NO_ROOM and tier in bench.proven else problem


def _rotation(
    gpus: Sequence[SelfTestGpu], alike: Sequence[SelfTestGpu]
) -> tuple[tuple[str, str], ...]:
    """Every GPU of the machine: those of one model change places in a circle, the others stay. Less
    than all is refused by drivers.
    """
    names = [gpu.uuid for gpu in alike]
    after = dict(zip(names, [*names[1:], names[0]], strict=True))
    return tuple((gpu.uuid, after.get(gpu.uuid, gpu.uuid)) for gpu in gpus)


def _round_trip(
    bench: SelfTest, old: SelfTestGpu, new: SelfTestGpu, pairs: Sequence[tuple[str, str]]
) -> str:
    """A toy on `old` is suspended and comes back on `new`: "" or what went wrong."""
    driver = bench.checkpointer
    try:
        with _SelfTestWorker(
            [old.uuid, *(gpu.uuid for gpu in bench.gpus if gpu.uuid != old.uuid)]
            if pairs
            else [old.uuid]
        ) as toy:
            driver.lock(toy.pid, LOCK_MS)
            driver.checkpoint(toy.pid)
            _is(driver, toy, ProcessState.CHECKPOINTED)
            driver.restore(toy.pid, pairs)
            driver.unlock(toy.pid)
            _is(driver, toy, ProcessState.RUNNING)
            answer = toy.ask()
    except CudaError as error:
        return _refusal(error)
    except OutcomeUnknown as error:
        return f"the driver did not answer ({error}); the kernel's log (dmesg) may say more: start the agent again when it is mended"
    except _CheckFailed as error:
        return str(error)
    except _WorkerFailed as error:
        if OUT_OF_MEMORY in str(error):
            return NO_ROOM
        return f"a test process could not use GPU {old.index} ({error})"
    return _verdict(answer, new.uuid)


def _is(driver: CheckpointClient, toy: _SelfTestWorker, state: ProcessState) -> None:
    """The state is what every real suspend is judged by: a driver that does not tell it, or tells
    another, is of no use.
    """
    found = driver.state(toy.pid)
    if found is not state:
        left = f"left a test process {found.name.lower()} that should be {state.name.lower()}"
        raise _CheckFailed(f"the driver said that it was done, and {left}; update it")


def _verdict(answer: str, expected: str) -> str:
    right, _, found = answer.partition(" ")
    if right != "right":
        return "a test process came back with wrong bytes: this driver must not be trusted with it; update it"
    if found != expected:
        return "the driver accepted the move and did not make it (the GPU's UUID is the old one); update it"
    return ""


def _refusal(error: CudaError) -> str:
    if error.code in FORBIDDEN:
        return (
            f"the driver may not touch other processes here ({error}): a sandbox such as gVisor, kernel.yama.ptrace_scope, or a driver before "
            "580; run the agent as root, set kernel.yama.ptrace_scope=0, turn on persistence mode (`nvidia-smi -pm 1`), or update the driver"
        )
    return f"the driver refused it for a test process ({error})"


class _CheckFailed(Exception):
    """The driver did not do what it said."""


class _WorkerFailed(Exception):
    """The toy did not start, or is gone."""


class _SelfTestWorker:
    """One toy process; killed at the end, whatever happens."""

    def __init__(self, visible: Sequence[str]) -> None:
        """It sees what a kernel sees: its own GPU first, the others too where memory is to be
        moved.
        """
        env = os.environ | {"CUDA_VISIBLE_DEVICES": ",".join(visible), MARKER: SELF_TEST}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "node_agent.devices.nvidia.selftest_worker", visible[0]],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=env,
            start_new_session=True,
        )
        self.pid = self._process.pid

    def __enter__(self) -> _SelfTestWorker:
        try:
            self._hear()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout, self._process.stderr):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()

    def ask(self) -> str:
        """`right UUID` or `wrong UUID`."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(b"check\n")
            self._process.stdin.flush()
        except OSError as error:
            raise _WorkerFailed("it died") from error
        return self._hear()

    def _hear(self) -> str:
        assert self._process.stdout is not None
        deadline, line = time.monotonic() + READY_S, b""
        while not line.endswith(b"\n"):
            ready, _, _ = select.select(
                [self._process.stdout], [], [], max(0.0, deadline - time.monotonic())
            )
            if not ready:
                raise _WorkerFailed("it did not answer in time")
            piece = os.read(self._process.stdout.fileno(), 4096)
            if not piece:
                raise _WorkerFailed(self._last_words())
            line += piece
        return line.decode().strip()

    def _last_words(self) -> str:
        assert self._process.stderr is not None
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(5)
            return (
                self._process.stderr.read().decode(errors="replace").strip().rpartition("\n")[2]
                or "it died"
            )
        return "it died"
