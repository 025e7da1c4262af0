"""One process at a time: lock, checkpoint, restore, unlock, each believed only when the process's
state says the same afterwards.
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

__all__ = ["CheckpointSteps"]

ROUNDS: Final = 3
"""How often to repeat what lost a race with cuInit, or was said to be done and was not."""
PAUSE_S: Final = 0.02
NO_CUDA: Final = (INVALID_VALUE, NOT_INITIALIZED)
"""What the documentation names for a process that CUDA does not know."""
GIVEN_UP: Final = "the driver has given up the state of its GPU memory"
NOT_DONE: Final = "the driver said that it was done, and it was not"


class CheckpointSteps:
    """The verbs. A process that has gone meanwhile is no error: nothing is left to be saved. Raises
    CudaError, Unsure, CopyFailed.
    """

    def __init__(self, driver: CheckpointClient) -> None:
        self._driver = driver

    def look(self, ident: ProcessId) -> ProcessState | None:
        """Of any process: None means that it does not use CUDA (drivers differ in how they say so),
        or is gone.
        """
        for _ in range(ROUNDS):
            if not ident.is_alive():
                return None
            try:
                return self._driver.state(ident.pid)
            except CudaError as error:
                if error.code in NO_CUDA:
                    return None
            time.sleep(PAUSE_S)
        return None

    def state(self, ident: ProcessId) -> ProcessState | None:
        """Of a process that is known to use CUDA: None means that it is gone, and a driver that
        denies a living one is asked again.
        """
        for turn in range(ROUNDS):
            if not ident.is_alive():
                return None
            try:
                return self._driver.state(ident.pid)
            except CudaError as error:
                if error.code != INVALID_VALUE or (turn == ROUNDS - 1 and ident.is_alive()):
                    raise
            time.sleep(PAUSE_S)
        return None

    def lock(self, ident: ProcessId, timeout_ms: int) -> None:
        """Locked (or saved already). A process in the middle of cuInit is not ready for it: again,
        a moment later.
        """
        for turn in range(ROUNDS):
            try:
                self._driver.lock(ident.pid, timeout_ms)
                return
            except CudaError as error:
                if not ident.is_alive():
                    return
                if error.code != ILLEGAL_STATE or turn == ROUNDS - 1:
                    raise
            state = self.state(ident)
            if state is ProcessState.FAILED:
                raise CopyFailed(GIVEN_UP, for_good=True, lost=True)
            if state is not ProcessState.RUNNING:
                return
            time.sleep(PAUSE_S)

    def checkpoint(self, ident: ProcessId, mib: int) -> None:
        """Saved. `mib` only makes the deadline."""
        if self._is(ident, ProcessState.CHECKPOINTED):
            return
        try:
            self._driver.checkpoint(ident.pid, mib)
        except CudaError:
            if not self._is(ident, ProcessState.CHECKPOINTED):
                raise
        if not self._is(ident, ProcessState.CHECKPOINTED):
            raise CopyFailed(NOT_DONE, for_good=False)

    def restore(self, ident: ProcessId, pairs: Sequence[tuple[str, str]], mib: int) -> None:
        """Back on a GPU, and locked. CopyFailed with `lost` when it can never be."""
        if self._is(ident, ProcessState.LOCKED):
            return
        try:
            self._driver.restore(ident.pid, pairs, mib)
        except CudaError as error:
            if error.code in (OUT_OF_MEMORY, OPERATING_SYSTEM):
                raise CopyFailed(
                    f"the driver cannot bring its GPU memory back: {error}",
                    for_good=True,
                    lost=True,
                ) from error
            if error.code == INVALID_VALUE and pairs and ident.is_alive():
                raise CopyFailed(
                    f"the driver refuses to move its GPU memory: {error}", for_good=True, lost=True
                ) from error
            if not self._is(ident, ProcessState.LOCKED):
                raise
        if not self._is(ident, ProcessState.LOCKED):
            raise CopyFailed(NOT_DONE, for_good=False)

    def unlock(self, ident: ProcessId) -> None:
        """It runs. Tried again: a process that stays locked is a kernel that hangs."""
        failure: CudaError | OutcomeUnknown | CopyFailed = CopyFailed(NOT_DONE, for_good=False)
        for _ in range(ROUNDS):
            if self.state(ident) is not ProcessState.LOCKED:
                return
            try:
                self._driver.unlock(ident.pid)
            except (CudaError, OutcomeUnknown) as error:
                failure = error
        if self.state(ident) is ProcessState.LOCKED:
            raise failure

    def _is(self, ident: ProcessId, wanted: ProcessState) -> bool:
        """Whether it is in this state, or gone. Raises CopyFailed when the driver has given it up."""
        state = self.state(ident)
        if state is ProcessState.FAILED:
            raise CopyFailed(GIVEN_UP, for_good=True, lost=True)
        return state is wanted or state is None
