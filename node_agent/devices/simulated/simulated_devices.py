"""Simulated GPUs: the agent's view of the file that holds a simulated node. Messages always call
them simulated.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from jupyter_gpushare.kernel.simnode import (
    NOT_SUPPORTED,
    DriverError,
    KernelReading,
    SimGpu,
    SimNode,
)
from jupyter_gpushare.messages import DeviceReport

from ...system.cgroups import Cgroups
from ..base.basic_devices import BasicDevices
from ..base.model import (
    TIERS,
    Capabilities,
    CopyAdmission,
    CopyFailed,
    DevicesBusy,
    DeviceTraits,
    NodeReading,
    TenantMemory,
)
from .simulated_sensors import SimulatedSensors
from .simulation import Simulation

__all__ = ["SimulatedDevices"]

MIB: Final = 1 << 20
READ_TIMEOUT_S: Final = 0.05
COPY_TIMEOUT_S: Final = 10.0


@contextmanager
def _busy_when_locked() -> Iterator[None]:
    """Another process locks the file for longer than the event loop can wait."""
    try:
        yield
    except sqlite3.OperationalError as error:
        raise DevicesBusy(str(error)) from error


class SimulatedDevices(BasicDevices):
    """The simulated GPUs of one node. Kernels are attributed, attached and limited by the file."""

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
        """`path`: the file; `for_all`: every user of this machine may open it."""
        self.path, self.simulation = path, simulation
        model = f"Simulated {simulation.model}-{simulation.memory_mib // 1024}GB"
        size = simulation.memory_mib * MIB
        self._gpus = [
            SimGpu(index, f"SIM-GPU-{node}-{index}", model, size)
            for index in range(simulation.count)
        ]
        self._index = {gpu.uuid: gpu.index for gpu in self._gpus}
        self._sensors = SimulatedSensors(simulation.model)
        self._node = SimNode.create(path, self._gpus, timeout=READ_TIMEOUT_S, for_all=for_all)
        self._copies = SimNode(path, timeout=COPY_TIMEOUT_S)
        """A connection of its own for copies in threads: the event loop never waits for them."""

    def close(self) -> None:
        """The file remains: it is the device memory."""
        self._node.close()
        self._copies.close()

    def reports(self) -> list[DeviceReport]:
        """The devices by index."""
        return [
            DeviceReport(
                index=gpu.index, uuid=gpu.uuid, model=gpu.model, total_mib=gpu.total // MIB
            )
            for gpu in self._gpus
        ]

    def sensors(self, gpu: int, utilization: float) -> tuple[int | None, int | None]:
        """Plausible ones: a busy GPU draws more power, and warms up slowly."""
        return self._sensors.read(gpu, utilization, time.monotonic())

    def environment(self) -> dict[str, str]:
        """Where kernels find the file."""
        return {"GPUSHARE_SIMGPU": str(self.path)}

    def capabilities(self) -> Capabilities:
        """The simulation has every tier."""
        return Capabilities(list(TIERS), {})

    # ---- reading and attaching -------------------------------------------------------------------

    def version(self) -> int:
        """SQLite's counter of changes by others."""
        with _busy_when_locked():
            return self._node.version()

    def read(self) -> NodeReading:
        """A consistent reading in whole MiB, rounded up: no kernel holds more than reported."""
        with _busy_when_locked():
            reading = self._node.read_all()
        used = {}
        for uuid, size in reading.used.items():
            if uuid in self._index:
                used[self._index[uuid]] = _mib_up(size)
        kernels = {name: self._memory(known) for name, known in reading.kernels.items()}
        return NodeReading(used, kernels)

    def _memory(self, known: KernelReading) -> TenantMemory:
        held: dict[int, int] = {}
        for (_, uuid), size in known.held.items():
            gpu = self._index.get(uuid, -1)
            held[gpu] = held.get(gpu, 0) + size
        image = [0] * (max(known.image, default=-1) + 1)
        for device, size in known.image.items():
            image[device] = _mib_up(size)
        states = {state for _, _, state in known.processes}
        return TenantMemory(
            held={gpu: _mib_up(size) for gpu, size in held.items()},
            image=tuple(image),
            suspended="checkpointed" in states,
            half_done="locked" in states,
            processes=self._pids(known),
            busy_ms=known.busy_ms,
        )

    def _pids(self, known: KernelReading) -> tuple[tuple[int, int], ...]:
        """The processes as this agent sees them."""
        found = ((self._node.pid_of(number, start), start) for number, start, _ in known.processes)
        return tuple((pid, start) for pid, start in found if pid is not None)

    def attach(self, kernels: Mapping[str, Sequence[tuple[int, int]]]) -> None:
        """One transaction for all of them."""
        attachments = {}
        for name, places in kernels.items():
            attachments[name] = [(self._gpus[gpu].uuid, cap * MIB) for gpu, cap in places]
        with _busy_when_locked():
            self._node.attach_all(attachments)

    def attached(self) -> set[str]:
        """Kernels with a row in the file."""
        with _busy_when_locked():
            return set(self._node.attachments())

    # ---- copies ----------------------------------------------------------------------------------

    def copy_timeout_s(self, mib: int) -> float:
        """Twice the duration of the copy, and 10 s."""
        rate = self.simulation.copy_gib_s
        return 10.0 + (2 * mib / 1024 / rate if rate else 0.0)

    def suspend(self, kernel_id: str, admit: CopyAdmission) -> int:
        """Lock every process, copy, checkpoint every process; a failure is undone."""
        locked: list[tuple[int, int]] = []
        try:
            for pid, start, state in self._processes(kernel_id):
                if state == "running":
                    self._copies.lock(pid, start)
                    locked.append((pid, start))
            known = self._copies.read_all().kernels.get(kernel_id, KernelReading())
            size = sum(known.held.values())
            if problem := admit(size // MIB):
                self._undo(kernel_id, locked)
                raise CopyFailed(problem, for_good=False)
            self._copy(size)
            return sum(self._copies.checkpoint(pid, start) for pid, start in locked) // MIB
        except DriverError as error:
            self._undo(kernel_id, locked)
            raise CopyFailed(str(error), for_good=error.code == NOT_SUPPORTED) from error
        except sqlite3.OperationalError as error:
            self._undo(kernel_id, locked)
            raise CopyFailed(str(error), for_good=False) from error

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
        """Finish the copy when a process is saved already, otherwise let the kernel run."""
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

    def _processes(self, kernel_id: str) -> list[tuple[int, int, str]]:
        known = self._copies.read_all().kernels.get(kernel_id)
        return known.processes if known else []

    def _copy(self, size: int) -> None:
        if self.simulation.copy_gib_s > 0:
            time.sleep(size / (self.simulation.copy_gib_s * (1 << 30)))

    def _undo(self, kernel_id: str, processes: Sequence[tuple[int, int]]) -> None:
        """Let every process run again: a kernel with one saved process would hang."""
        uuids = [uuid for uuid, _ in self._copies.attached(kernel_id)]
        for pid, start in processes:
            try:
                if self._copies.state(pid, start) == "checkpointed":
                    self._copies.restore(pid, start, uuids)
                if self._copies.state(pid, start) == "locked":
                    self._copies.unlock(pid, start)
            except (DriverError, sqlite3.OperationalError):
                continue


def _mib_up(size: int) -> int:
    return -(-size // MIB)
