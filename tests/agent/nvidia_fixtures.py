"""Two kernels on a fake GPU machine, with real processes and bytes, for tests of copies."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from node_agent.devices.base.model import CopyFailed
from node_agent.devices.nvidia.checkpoint_client import CheckpointClient, Deadlines
from node_agent.devices.nvidia.checkpoints import Checkpoints, CheckpointTimes
from tests.fake_driver.environment import ExactMemoryView
from tests.fake_driver.fake_gpu_machine import GIB, FakeGpuMachine, Worker

__all__ = ["CALM", "HASTY", "PATIENT", "Scene", "attempt", "scene_of"]

HASTY = Deadlines(state=0.3, lock=0.3, copy=0.3, unlock=0.3, mib_per_s=1 << 20)
"""For tests with hangs: other calls are fast, and a busy test machine only adds a hang."""
CALM = Deadlines(state=3, lock=3, copy=3, unlock=3)
PATIENT = Deadlines()
QUICK = CheckpointTimes(lock_ms=150, neighbour_ms=50, listed_s=0.3, retry_s=0)


class Scene:
    """Kernel `k` has two processes on GPU 0, its neighbour `n` one; each has a text in GPU memory
    that must survive.
    """

    def __init__(
        self,
        machine: FakeGpuMachine,
        folder: Path,
        *,
        relocates: bool = False,
        deadlines: Deadlines = PATIENT,
    ) -> None:
        self.machine, self.folder, self.relocates, self.deadlines = (
            machine,
            folder,
            relocates,
            deadlines,
        )
        self.kernels: dict[str, list[Worker]] = {}
        self.texts: dict[int, tuple[str, str]] = {}
        for name, count in (("k", 2), ("n", 1)):
            self.kernels[name] = [self.worker(name, 2 * GIB) for _ in range(count)]
        self.memory_view = ExactMemoryView(machine, self.kernels)
        self.start()

    def worker(self, name: str, size: int, ordinal: int = 0) -> Worker:
        """A process with a text in GPU memory."""
        worker = self.machine.worker()
        pointer, text = worker.do("alloc", ordinal, size), f"bytes-of-{name}-{worker.pid}"
        assert worker.do("write", pointer, text) == "ok"
        self.texts[worker.pid] = pointer, text
        return worker

    def start(self) -> None:
        """Start the agent's part."""
        with self.machine.active():
            self.driver = CheckpointClient(self.deadlines)
            self.copies = Checkpoints(
                self.driver,
                self.memory_view,
                self.folder / "parked.json",
                self.machine.uuids,
                [self.machine.model] * len(self.machine.uuids),
                can_relocate=lambda: self.relocates,
                times=QUICK,
            )

    def restart(self) -> None:
        """Restart the agent's part, which recovers all kernels."""
        self.copies.close()
        self.start()
        for name in self.kernels:
            self.copies.recover(name)

    def close(self) -> None:
        self.copies.close()

    def renew(self) -> None:
        """The initial state, for the next test: no faults, and all processes run."""
        self.machine.clear()
        self.driver.deadlines = PATIENT
        for name, workers in self.kernels.items():
            self.copies.recover(name)
            if self.suspended() and name == "k":
                self.copies.resume("k", (0,))
            workers[:] = [
                worker if worker.is_alive() else self.worker(name, 2 * GIB) for worker in workers
            ]
        self.check_consistent()
        self.driver.deadlines = self.deadlines

    def alive(self, name: str = "k") -> list[Worker]:
        return [worker for worker in self.kernels[name] if worker.is_alive()]

    def states(self, name: str = "k") -> set[str]:
        return {self.machine.state(worker.pid) for worker in self.alive(name)}

    def suspended(self) -> bool:
        saved = self.copies.saved().get("k")
        return saved is not None and saved.suspended

    def recover_all(self) -> None:
        """Like the reconciler: recover kernels with interrupted copies until there are none."""
        for _ in range(5):
            uncertain = [name for name, saved in self.copies.saved().items() if saved.half_done]
            for name in uncertain:
                self.copies.recover(name)
            if not uncertain:
                return
        raise AssertionError(f"still uncertain: {self.copies.saved()}")

    def check_values(self) -> None:
        """Every living process of both kernels runs and reads what it wrote."""
        for worker in [*self.alive("k"), *self.alive("n")]:
            pointer, text = self.texts[worker.pid]
            assert worker.do("read", pointer, len(text)) == text

    def check_consistent(self) -> None:
        """Saved processes are checkpointed, all others run, and no lock is held."""
        assert self.states("n") <= {"running"}
        assert self.states() <= ({"checkpointed"} if self.suspended() else {"running"}), (
            self.copies.saved()
        )
        assert set(self.copies.saved()) <= {"k"}
        locks = [self.copies._locks.kernel(name) for name in self.kernels] + [
            self.copies._locks.gpu(gpu) for gpu in (0, 1)
        ]
        for lock in locks:
            assert lock.acquire(blocking=False)
            lock.release()


@contextmanager
def scene_of(tmp_path: Path, **options: object) -> Iterator[Scene]:
    """A fake machine with two GPUs and a scene; the worker process finds the fake driver by the
    environment.
    """
    relocates = bool(options.pop("relocates", False))
    deadlines = options.pop("deadlines", PATIENT)
    assert isinstance(deadlines, Deadlines)
    made = FakeGpuMachine(**{"gpus": 2, **options})  # type: ignore[arg-type]
    with made as machine, pytest.MonkeyPatch.context() as patch:
        for name, value in machine.environment().items():
            patch.setenv(name, value)
        scene = Scene(machine, tmp_path, relocates=relocates, deadlines=deadlines)
        try:
            yield scene
        finally:
            scene.close()


def attempt(call: object, *args: object) -> CopyFailed | None:
    """The failure, if any."""
    try:
        call(*args)  # type: ignore[operator]
    except CopyFailed as error:
        return error
    return None
