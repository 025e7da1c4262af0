"""Lock, checkpoint, restore and unlock of a single process. A step succeeds only when the state of
the process confirms it.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Final

from ...system.processes import ProcessId
from ..base.model import CopyFailed
from .checkpoint_client import CheckpointClient, OutcomeUnknown
from .cuda import (
    ILLEGAL_STATE,
    INVALID_VALUE,
    NOT_INITIALIZED,
    OPERATING_SYSTEM,
    OUT_OF_MEMORY,
    CudaError,
    ProcessState,
)

__all__ = ["STATE_LOST", "CheckpointSteps"]

ATTEMPTS: Final = 3
"""For calls that lost a race with cuInit, or were reported as done but were not."""
PAUSE_S: Final = 0.02
NO_CUDA: Final = (INVALID_VALUE, NOT_INITIALIZED)
"""Documented errors for processes that do not use CUDA."""
STATE_LOST: Final = "the driver has lost the state of its GPU memory"
NOT_CONFIRMED: Final = "the driver reported success, but the state of the process did not change"


class CheckpointSteps:
    """The steps. A process that ended meanwhile is no error: nothing is left to save. Methods raise
    CudaError, OutcomeUnknown and CopyFailed.
    """

    def __init__(self, driver: CheckpointClient) -> None:
        self._driver = driver

    def probe_state(self, process: ProcessId) -> ProcessState | None:
        """State of any process; None when it does not use CUDA (drivers report that differently),
        or has ended.
        """
        for _ in range(ATTEMPTS):
            if not process.is_alive():
                return None
            try:
                return self._driver.state(process.pid)
            except CudaError as error:
                if error.code in NO_CUDA:
                    return None
            time.sleep(PAUSE_S)
        return None

    def state(self, process: ProcessId) -> ProcessState | None:
        """State of a process that is known to use CUDA; None when it has ended. A driver that does
        not know a living process is asked again.
        """
        for attempt in range(ATTEMPTS):
            if not process.is_alive():
                return None
            try:
                return self._driver.state(process.pid)
            except CudaError as error:
                is_last = attempt == ATTEMPTS - 1
                if error.code != INVALID_VALUE or (is_last and process.is_alive()):
                    raise
            time.sleep(PAUSE_S)
        return None

    def lock(self, process: ProcessId, timeout_ms: int) -> None:
        """The process is locked (or already saved) afterwards. Retried while it runs cuInit."""
        for attempt in range(ATTEMPTS):
            try:
                self._driver.lock(process.pid, timeout_ms)
                return
            except CudaError as error:
                if not process.is_alive():
                    return
                if error.code != ILLEGAL_STATE or attempt == ATTEMPTS - 1:
                    raise
            state = self.state(process)
            if state is ProcessState.FAILED:
                raise CopyFailed(STATE_LOST, for_good=True, lost=True)
            if state is not ProcessState.RUNNING:
                return
            time.sleep(PAUSE_S)

    def checkpoint(self, process: ProcessId, mib: int) -> None:
        """The process is saved afterwards. `mib` affects only the deadline."""
        if self._is_in(ProcessState.CHECKPOINTED, process):
            return
        try:
            self._driver.checkpoint(process.pid, mib)
        except CudaError:
            if not self._is_in(ProcessState.CHECKPOINTED, process):
                raise
        if not self._is_in(ProcessState.CHECKPOINTED, process):
            raise CopyFailed(NOT_CONFIRMED, for_good=False)

    def restore(self, process: ProcessId, pairs: Sequence[tuple[str, str]], mib: int) -> None:
        """The memory of the process is on a GPU afterwards, and the process is locked. CopyFailed
        has `lost` when that will never be possible.
        """
        if self._is_in(ProcessState.LOCKED, process):
            return
        try:
            self._driver.restore(process.pid, pairs, mib)
        except CudaError as error:
            if problem := _loss(error, moves=bool(pairs) and process.is_alive()):
                raise CopyFailed(problem, for_good=True, lost=True) from error
            if not self._is_in(ProcessState.LOCKED, process):
                raise
        if not self._is_in(ProcessState.LOCKED, process):
            raise CopyFailed(NOT_CONFIRMED, for_good=False)

    def unlock(self, process: ProcessId) -> None:
        """The process runs afterwards. Retried, because a kernel with a locked process hangs."""
        failure: CudaError | OutcomeUnknown | CopyFailed
        failure = CopyFailed(NOT_CONFIRMED, for_good=False)
        for _ in range(ATTEMPTS):
            if self.state(process) is not ProcessState.LOCKED:
                return
            try:
                self._driver.unlock(process.pid)
            except (CudaError, OutcomeUnknown) as error:
                failure = error
        if self.state(process) is ProcessState.LOCKED:
            raise failure

    def _is_in(self, wanted: ProcessState, process: ProcessId) -> bool:
        """Whether it is in this state, or has ended. Raises CopyFailed when its state is lost."""
        state = self.state(process)
        if state is ProcessState.FAILED:
            raise CopyFailed(STATE_LOST, for_good=True, lost=True)
        return state is wanted or state is None


def _loss(error: CudaError, *, moves: bool) -> str:
    """Why this error of a restore means that the memory is lost; "": it does not."""
    if error.code in (OUT_OF_MEMORY, OPERATING_SYSTEM):
        return f"the driver cannot restore its GPU memory: {error}"
    if error.code == INVALID_VALUE and moves:
        return f"the driver refuses to move its GPU memory: {error}"
    return ""
