"""Simulated GPUs: the agent's side of the simulated node's file. Always called simulated, wherever
a person looks.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from jupyter_gpushare.core.model.errors import InvalidInput
from jupyter_gpushare.core.model.units import read_memory
from jupyter_gpushare.messages import DeviceReport
from jupyter_gpushare.simnode import NOT_SUPPORTED, DriverError, KernelReading, SimGpu, SimNode

from ...system.cgroups import Cgroups
from ..base.model import (
    TIERS,
    Capabilities,
    CopyAdmission,
    CopyFailed,
    DeviceFault,
    DevicesBusy,
    DeviceTraits,
    KernelProcesses,
    NodeReading,
    TenantMemory,
)

__all__ = ["SimulatedDevices", "Simulation", "read_simulation"]

MIB: Final = 1 << 20
KNOWN: Final = {
    "A100": "80GiB",
    "H100": "80GiB",
    "H200": "141GiB",
    "B200": "180GiB",
    "L40S": "48GiB",
    "L4": "24GiB",
    "T4": "16GiB",
    "V100": "32GiB",
}
MAX_GPUS: Final = 64
PROMPTLY_S: Final = 0.05
PATIENTLY_S: Final = 10.0


@dataclass(frozen=True, slots=True)
class Simulation:
    """What to simulate: `copy_gib_s` is the speed of saving and restoring; 0: copies take no time."""

    model: str = "A100"
    count: int = 2
    memory_mib: int = 80 * 1024
    copy_gib_s: float = 100.0


DEFAULT_MEMORY = "80GiB"
"""Of a model that is not in the table: nothing real depends on it."""


def read_simulation(
    text: str, *, memory: str | None = None, copy_gib_s: float = 100.0
) -> Simulation:
    """`A100:2`, `A100-40GB:2` (model and number) or `2`. Raises InvalidInput."""
    model, _, number = (
        text.rpartition(":")
        if ":" in text
        else (("", "", text) if text.isdecimal() else (text, "", "1"))
    )
    if not number.isdecimal() or not 0 < int(number) <= MAX_GPUS:
        raise InvalidInput(
            f"--simulate must be MODEL:N with 1 to {MAX_GPUS} GPUs, such as A100:2, got {text!r}",
            field="simulate",
        )
    model, suffix = _model_and_size(model or "A100")
    size = memory or suffix or KNOWN.get(model.upper(), DEFAULT_MEMORY)
    return Simulation(model, int(number), read_memory(size, what="gpu memory"), copy_gib_s)


def _model_and_size(text: str) -> tuple[str, str | None]:
    """`A100-80GB` is a model with the memory in its name, as vendors write it (their GB are GiB)."""
    model, _, size = text.rpartition("-")
    if model and size.upper().endswith("GB") and size[:-2].isdecimal():
        return model, f"{size[:-2]}GiB"
    return text, None


@contextmanager
def _promptly() -> Iterator[None]:
    """Somebody holds the file for longer than the event loop can wait."""
    try:
        yield
    except sqlite3.OperationalError as error:
        raise DevicesBusy(str(error)) from error


class SimulatedDevices:
    """The simulated GPUs of one node."""

    traits = DeviceTraits(
        label="simulated GPU",
        simulated=True,
        kernels_select_devices=False,
        reports_usage=False,
        images_use_host_memory=False,
        recovers_copies_at_start=False,
    )
    cgroups = Cgroups(None, "simulated GPUs need no cgroups")

    def __init__(
        self, path: Path, node: str, simulation: Simulation, *, for_all: bool = False
    ) -> None:
        self.path, self.simulation = path, simulation
        model = f"Simulated {simulation.model}-{simulation.memory_mib // 1024}GB"
        size = simulation.memory_mib * MIB
        gpus = [
            SimGpu(index, f"SIM-GPU-{node}-{index}", model, size)
            for index in range(simulation.count)
        ]
        self._node = SimNode.create(path, gpus, timeout=PROMPTLY_S, for_all=for_all)
        self._copies = SimNode(path, timeout=PATIENTLY_S)
        """Another connection for the copies in their threads: the event loop never waits for
        theirs.
        """
        self._gpus = gpus
        self._index = {gpu.uuid: gpu.index for gpu in gpus}

    def close(self) -> None:
        """The file stays: it is the device memory."""
        self._node.close()
        self._copies.close()

    def reports(self) -> list[DeviceReport]:
        """The devices by index."""
        return [
            DeviceReport(index=g.index, uuid=g.uuid, model=g.model, total_mib=g.total // MIB)
            for g in self._gpus
        ]

    def environment(self) -> dict[str, str]:
        """Where kernels find the node."""
        return {"GPUSHARE_SIMGPU": str(self.path)}

    def capabilities(self) -> Capabilities:
        """The simulation has every tier."""
        return Capabilities(list(TIERS), {})

    def probe(self) -> None:
        """Nothing to test."""

    def advice(self, tier: str, problem: str) -> tuple[str, str]:  # noqa: ARG002 - protocol
        """No tier is missing."""
        return problem, ""

    def driver(self) -> str:
        """None: a simulation has no driver."""
        return ""

    def track_kernels(self, kernels: Mapping[str, KernelProcesses]) -> None:
        """The file knows whose every process is."""

    def start(self, wake: Callable[[], None]) -> None:
        """Every reading is of this moment: there is nothing to wait for."""

    def refresh(self) -> None:
        """The same."""

    def sample_fast(self, closely: bool) -> None:
        """The same."""

    def take_faults(self) -> list[DeviceFault]:
        """Nothing breaks."""
        return []

    def version(self) -> int:
        """SQLite's own counter of changes by others."""
        with _promptly():
            return self._node.version()

    def read(self) -> NodeReading:
        """Everything at one moment, whole MiB (rounded up: a kernel never holds more than we
        think).
        """
        with _promptly():
            reading = self._node.read_all()
        used = {
            self._index[uuid]: -(-size // MIB)
            for uuid, size in reading.used.items()
            if uuid in self._index
        }
        return NodeReading(
            used, {name: self._holding(known) for name, known in reading.kernels.items()}
        )

    def _holding(self, known: KernelReading) -> TenantMemory:
        held: dict[int, int] = {}
        for (_, uuid), size in known.held.items():
            gpu = self._index.get(uuid, -1)
            held[gpu] = held.get(gpu, 0) + size
        image = [0] * (max(known.image, default=-1) + 1)
        for device, size in known.image.items():
            image[device] = -(-size // MIB)
        states = {state for _, _, state in known.processes}
        return TenantMemory(
            {gpu: -(-size // MIB) for gpu, size in held.items()},
            tuple(image),
            "checkpointed" in states,
            "locked" in states,
            tuple((pid, start) for pid, start, _ in known.processes),
            known.busy_ms,
        )

    def attach(self, kernels: Mapping[str, Sequence[tuple[int, int]]]) -> None:
        """One transaction for all of them."""
        uuids = [gpu.uuid for gpu in self._gpus]
        with _promptly():
            self._node.attach_all(
                {
                    name: [(uuids[gpu], cap * MIB) for gpu, cap in places]
                    for name, places in kernels.items()
                }
            )

    def attached(self) -> set[str]:
        """Kernels with a row in the file."""
        with _promptly():
            return set(self._node.attachments())

    def release_cgroup(self, leaf: str) -> None:
        """Nothing was said about cgroups."""

    def suspend_problem(self, gpu: int) -> str:  # noqa: ARG002 - the protocol's signature
        """They are all alike."""
        return ""

    def copy_timeout_s(self, mib: int) -> float:
        """Twice what it takes."""
        rate = self.simulation.copy_gib_s
        return 10.0 + (2 * mib / 1024 / rate if rate else 0.0)

    def orphaned_cgroups(self, alive: set[str]) -> list[str]:  # noqa: ARG002 - the protocol's signature
        """None."""
        return []

    def _processes(self, kernel_id: str) -> list[tuple[int, int, str]]:
        known = self._copies.read_all().kernels.get(kernel_id)
        return known.processes if known else []

    def _copy(self, size: int) -> None:
        if self.simulation.copy_gib_s > 0:
            time.sleep(size / (self.simulation.copy_gib_s * (1 << 30)))

    def suspend(self, kernel_id: str, admit: CopyAdmission) -> int:
        """Lock every process, copy, checkpoint every process; what fails is undone."""
        locked: list[tuple[int, int]] = []
        try:
            for pid, start, state in self._processes(kernel_id):
                if state == "running":
                    self._copies.lock(pid, start)
                    locked.append((pid, start))
            known = self._copies.read_all().kernels.get(kernel_id, KernelReading())
            if problem := admit(sum(known.held.values()) // MIB):
                self._undo(kernel_id, locked)
                raise CopyFailed(problem, for_good=False)
            self._copy(sum(known.held.values()))
            return sum(self._copies.checkpoint(pid, start) for pid, start in locked) // MIB
        except DriverError as error:
            self._undo(kernel_id, locked)
            raise CopyFailed(str(error), for_good=error.code == NOT_SUPPORTED) from error
        except sqlite3.OperationalError as error:
            self._undo(kernel_id, locked)
            raise CopyFailed(str(error), for_good=False) from error

    def _undo(self, kernel_id: str, processes: Sequence[tuple[int, int]]) -> None:
        """Back to running: half of a kernel saved is a kernel that hangs."""
        homes = [uuid for uuid, _ in self._copies.attached(kernel_id)]
        for pid, start in processes:
            try:
                if self._copies.state(pid, start) == "checkpointed":
                    self._copies.restore(pid, start, homes)
                if self._copies.state(pid, start) == "locked":
                    self._copies.unlock(pid, start)
            except (DriverError, sqlite3.OperationalError):
                continue

    def resume(self, kernel_id: str, gpus: Sequence[int]) -> int:
        """Restore every process, copy, unlock every process."""
        uuids = [self._gpus[gpu].uuid for gpu in gpus]
        size = 0
        try:
            for pid, start, state in self._processes(kernel_id):
                if state == "checkpointed":
                    size += self._copies.restore(pid, start, uuids)
            self._copy(size)
            for pid, start, state in self._processes(kernel_id):
                if state == "locked":
                    self._copies.unlock(pid, start)
        except DriverError as error:
            raise CopyFailed(str(error), for_good=True, lost=True) from error
        except sqlite3.OperationalError as error:
            raise CopyFailed(str(error), for_good=False) from error
        return size // MIB

    def recover(self, kernel_id: str) -> None:
        """Go on when something is saved already, else let the kernel run."""
        processes = self._processes(kernel_id)
        saved = any(state == "checkpointed" for _, _, state in processes)
        for pid, start, state in processes:
            try:
                if state == "locked" and saved:
                    self._copies.checkpoint(pid, start)
                elif state == "locked":
                    self._copies.unlock(pid, start)
            except (DriverError, sqlite3.OperationalError):
                continue
