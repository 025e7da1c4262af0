"""Determines the capability tiers of this node by trying them, and for each missing tier the reason
and the remedy.

A test process with a few MiB on a GPU is suspended and resumed, and reports whether its bytes are
intact and on which GPU it runs. It is not a child of the checkpoint worker, just as kernels are
not: Yama or a sandbox would restrict both alike. Everything has a deadline: the test process is
killed, and a call that hangs costs the checkpoint worker (`checkpoint_client`), never the agent.
The test takes no memory from users: without free memory, or while kernels use the GPUs, results
proven earlier count, and otherwise the test is postponed, as it is beside an MPS server.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Protocol

from ...system.cgroups import Cgroups
from .checkpoint_client import CheckpointClient, OutcomeUnknown
from .cuda import NOT_PERMITTED, OPERATING_SYSTEM, CudaError, ProcessState
from .mps import mps_is_running
from .selftest_process import SelfTestProcess, SelfTestProcessFailed

__all__ = [
    "MIG_PROBLEM",
    "REMEDIES",
    "SelfTest",
    "SelfTestGpu",
    "has_mps",
    "is_postponed",
    "reason_and_remedy",
    "run_self_test",
]

LOCK_TIMEOUT_MS: Final = 10_000
NEEDED_MIB: Final = 1024
"""For a test process: a CUDA context takes 300 to 600 MiB."""
NO_FREE_MEMORY: Final = (
    "no GPU has 1 GiB of free memory for a test process; it is tested as soon as one has"
)
MPS_PROBLEM: Final = (
    "an MPS server runs on this machine, and processes under MPS cannot be checkpointed; stop it "
    "(`echo quit | nvidia-cuda-mps-control`), and it is tested again"
)
OUT_OF_MEMORY: Final = "CUDA_ERROR_OUT_OF_MEMORY"
MIG_PROBLEM: Final = (
    "MIG instances cannot be checkpointed; turn MIG off, or accept that kernels are restarted "
    "when their memory is reclaimed"
)
PID_NAMESPACE_PROBLEM: Final = (
    "the driver reports processes by the pids of the host, but this agent runs in a pid namespace "
    "of its own and cannot attribute memory; use the host's (hostPID: true, "
    "`docker run --pid=host`)"
)
INIT_NAMESPACE: Final = "pid:[4026531836]"
"""PROC_PID_INIT_INO of the Linux kernel."""
NEEDS_OBSERVE: Final = "it requires the tier observe: "
NEEDS_SUSPEND: Final = "it requires the tier suspend: "
REMEDIES: Final = {
    "observe": (
        "update the NVIDIA driver to 535 or newer, and let the agent see the host's processes "
        "(hostPID in a container)"
    ),
    "cooperate": "start kernels with the gpushare provisioner",
    "limit": (
        "use driver 615 or newer, and delegate a cgroup (Delegate=yes in the agent's service)"
    ),
    "suspend": (
        "use driver 570 or newer on x86_64 without MPS and MIG, and run the agent as the kernels' "
        "user or root"
    ),
    "relocate": (
        "use two GPUs of one model and driver 580 or newer; until then, kernels that have to move "
        "are restarted"
    ),
}
"""For problems that do not name a remedy."""
FORBIDDEN: Final = frozenset({OPERATING_SYSTEM, NOT_PERMITTED})


class SelfTestGpu(Protocol):
    """Properties of a device that the test uses."""

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


class _LimitTest(Protocol):
    def problem(self) -> str: ...
    def test(self, cgroup: str) -> None: ...
    def clear(self, cgroup: str) -> None: ...


@dataclass(frozen=True, slots=True)
class SelfTest:
    """What is tested. `attribution_problem`: why the driver does not report the processes of the
    GPUs, "" when it does; `free`: MiB per GPU; `proven`: tiers that a test has confirmed since this
    machine was started; `in_use`: kernels hold memory, so proven tiers are not tested again.
    """

    gpus: Sequence[SelfTestGpu]
    checkpoints: CheckpointClient
    limits: _LimitTest
    cgroups: Cgroups
    attribution_problem: str
    free: Mapping[int, int]
    proven: frozenset[str] = field(default_factory=frozenset)
    in_use: bool = False
    pids: Callable[[int], Collection[int] | None] = lambda _: None
    """Pids that the driver lists on a GPU now; None: not known."""


def run_self_test(test: SelfTest) -> dict[str, str]:
    """For each tier "" or why it is missing. Blocks for seconds; problems of the machine raise
    nothing.
    """
    observe = _observe(test)
    suspend = f"{NEEDS_OBSERVE}{observe}" if observe else _suspend(test)
    return {
        "observe": observe,
        "cooperate": "",
        "limit": _limit(test),
        "suspend": suspend,
        "relocate": f"{NEEDS_SUSPEND}{suspend}" if suspend else _relocate(test),
    }


def reason_and_remedy(tier: str, problem: str) -> tuple[str, str]:
    """Splits a problem; its remedy follows a semicolon, or is that of the tier."""
    reason, _, remedy = problem.partition("; ")
    if not remedy:
        remedy = REMEDIES.get("suspend" if reason.startswith(NEEDS_SUSPEND) else tier, "")
    return reason, remedy


def is_postponed(problems: Iterable[str]) -> bool:
    """Whether a test waits for free GPU memory, or for the end of an MPS server."""
    return any(problem.endswith((NO_FREE_MEMORY, MPS_PROBLEM)) for problem in problems)


def has_mps(gpus: Iterable[SelfTestGpu]) -> bool:
    """Whether an MPS server runs that kernels on these GPUs could use."""
    return mps_is_running({gpu.minor for gpu in gpus if gpu.minor >= 0})


# ---- observe -------------------------------------------------------------------------------------


def _observe(test: SelfTest) -> str:
    if test.attribution_problem:
        return f"the driver does not say which process uses the GPUs ({test.attribution_problem})"
    whole = [gpu for gpu in test.gpus if not gpu.mig]
    if is_init_namespace() or not whole:
        return ""
    gpu = _by_free_memory(test, whole)[0]
    if test.free.get(gpu.index, 0) < NEEDED_MIB:
        return ""
    try:
        with SelfTestProcess([gpu.uuid]) as process:
            listed = test.pids(gpu.index)
            return "" if listed is None or process.pid in listed else PID_NAMESPACE_PROBLEM
    except SelfTestProcessFailed:
        return ""  # the test of `suspend` reports it


def is_init_namespace(proc: Path = Path("/proc")) -> bool:
    """Whether this process sees the pids of the host, by which the NVIDIA driver reports processes
    (NVIDIA/nvidia-docker issues 179 and 1483).
    """
    try:
        return os.readlink(proc / "self/ns/pid") == INIT_NAMESPACE
    except OSError:
        return False


# ---- limit ---------------------------------------------------------------------------------------


def _limit(test: SelfTest) -> str:
    problem = test.limits.problem()
    if problem:
        return problem
    leaf = test.cgroups.make(f"self-test.{os.getpid()}")
    if not leaf:
        return test.cgroups.problem or "no cgroup can be created"
    try:
        test.limits.test(leaf)
    finally:
        test.limits.clear(leaf)
        test.cgroups.remove(leaf)
    return test.limits.problem()


# ---- suspend and relocate ------------------------------------------------------------------------


def _suspend(test: SelfTest) -> str:
    whole = [gpu for gpu in test.gpus if not gpu.mig]
    if not whole:
        return MIG_PROBLEM
    problem = test.checkpoints.problem()
    if problem:
        return problem
    if has_mps(test.gpus):
        return MPS_PROBLEM
    gpu = _by_free_memory(test, whole)[0]
    return _try(test, "suspend", gpu, gpu, ())


def _relocate(test: SelfTest) -> str:
    whole = [gpu for gpu in test.gpus if not gpu.mig]
    models: dict[str, list[SelfTestGpu]] = {}
    for gpu in whole:
        models.setdefault(gpu.model, []).append(gpu)
    alike = max(models.values(), key=len, default=[])
    if len(alike) < 2:
        return "this machine has no two GPUs of one model"
    if not test.checkpoints.can_remap():
        return "the driver cannot restore on another GPU; this requires driver 580"
    if len(whole) < len(test.gpus):
        return (
            "some GPUs are partitioned (MIG), but a move has to name every GPU; turn MIG off on all"
        )
    alike = _by_free_memory(test, alike)
    return _try(test, "relocate", alike[0], alike[1], _rotation(test.gpus, alike))


def _by_free_memory(test: SelfTest, gpus: Sequence[SelfTestGpu]) -> list[SelfTestGpu]:
    return sorted(gpus, key=lambda gpu: (-test.free.get(gpu.index, 0), gpu.index))


def _try(
    test: SelfTest, tier: str, old: SelfTestGpu, new: SelfTestGpu, pairs: Sequence[tuple[str, str]]
) -> str:
    """The problem of a tier; an earlier proof counts where a test would take memory from users."""
    has_room = all(test.free.get(gpu.index, 0) >= NEEDED_MIB for gpu in (old, new))
    problem = NO_FREE_MEMORY
    if has_room and not (tier in test.proven and test.in_use):
        problem = _round_trip(test, old, new, pairs)
    return "" if problem == NO_FREE_MEMORY and tier in test.proven else problem


def _rotation(
    gpus: Sequence[SelfTestGpu], alike: Sequence[SelfTestGpu]
) -> tuple[tuple[str, str], ...]:
    """A map of every GPU of the machine, which drivers require: those of one model rotate, the
    others keep their place.
    """
    names = [gpu.uuid for gpu in alike]
    after = dict(zip(names, [*names[1:], names[0]], strict=True))
    return tuple((gpu.uuid, after.get(gpu.uuid, gpu.uuid)) for gpu in gpus)


def _round_trip(
    test: SelfTest, old: SelfTestGpu, new: SelfTestGpu, pairs: Sequence[tuple[str, str]]
) -> str:
    """Suspend a test process on `old` and resume it on `new`; returns "" or the problem."""
    driver, visible = test.checkpoints, [old.uuid]
    if pairs:
        visible += [gpu.uuid for gpu in test.gpus if gpu.uuid != old.uuid]
    try:
        with SelfTestProcess(visible) as process:
            driver.lock(process.pid, LOCK_TIMEOUT_MS)
            driver.checkpoint(process.pid)
            _check_state(driver, process, ProcessState.CHECKPOINTED)
            driver.restore(process.pid, pairs)
            driver.unlock(process.pid)
            _check_state(driver, process, ProcessState.RUNNING)
            answer = process.check()
    except CudaError as error:
        return _refusal(error)
    except OutcomeUnknown as error:
        return (
            f"the driver did not answer ({error}); see the kernel log (dmesg), and restart the "
            "agent after the repair"
        )
    except _StateMismatch as error:
        return str(error)
    except SelfTestProcessFailed as error:
        if OUT_OF_MEMORY in str(error):
            return NO_FREE_MEMORY
        return f"a test process could not use GPU {old.index} ({error})"
    return _verdict(answer, new.uuid)


class _StateMismatch(Exception):
    """Raised when the driver reported success, but the process is in another state."""


def _check_state(driver: CheckpointClient, process: SelfTestProcess, wanted: ProcessState) -> None:
    """Every real suspend depends on correct states."""
    found = driver.state(process.pid)
    if found is not wanted:
        raise _StateMismatch(
            f"the driver reported success, but left a test process {found.name.lower()} that "
            f"should be {wanted.name.lower()}; update it"
        )


def _verdict(answer: str, expected: str) -> str:
    result, _, found = answer.partition(" ")
    if result != "right":
        return "the driver restored a test process with wrong bytes and must not be used; update it"
    if found != expected:
        return (
            "the driver accepted the move but did not make it (the UUID is the old one); update it"
        )
    return ""


def _refusal(error: CudaError) -> str:
    if error.code in FORBIDDEN:
        return (
            f"the driver may not access other processes ({error}): a sandbox such as gVisor, "
            "kernel.yama.ptrace_scope, or a driver before 580; run the agent as root, set "
            "kernel.yama.ptrace_scope=0, turn on persistence mode (`nvidia-smi -pm 1`), or update "
            "the driver"
        )
    return f"the driver refused a test process ({error})"
