"""Optional NVML queries per GPU: what a driver or a GPU does not support is tried once, logged, and
not called again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TypeVar

from .nvml import NvmlFailed

__all__ = ["NvmlQueries"]

log = logging.getLogger("gpushare.agent")
T = TypeVar("T")


class NvmlQueries:
    """Remembers which calls are unsupported on which GPU, and which GPUs do not answer."""

    def __init__(self) -> None:
        self._unsupported: dict[tuple[str, int], str] = {}
        self.unresponsive: dict[int, str] = {}
        """GPU -> problem, in one sentence."""
        self.changes = 0
        """Changes of `unresponsive`."""

    def query(self, call: str, gpu: int, function: Callable[[], T]) -> T | None:
        """The result; None when the call is unsupported or failed this time."""
        if (call, gpu) in self._unsupported:
            return None
        try:
            result = function()
        except NvmlFailed as error:
            self._failed(call, gpu, error)
            return None
        if call == "memory" and self.unresponsive.pop(gpu, ""):
            log.info("GPU %d answers again", gpu)
            self.changes += 1
        return result

    def _failed(self, call: str, gpu: int, error: NvmlFailed) -> None:
        if error.is_missing or error.is_refused:
            self._unsupported[call, gpu] = error.text
            log.info("GPU %d: %s is not available (%s)", gpu, call.replace("_", " "), error.text)
        elif call == "memory" or error.is_lost:
            problem = f"It does not answer (NVML: {error.text})."
            if self.unresponsive.get(gpu) != problem:
                log.error("GPU %d: %s", gpu, problem)
                self.unresponsive[gpu] = problem
                self.changes += 1

    def unsupported(self, call: str) -> dict[int, str]:
        """GPUs without this call, and NVML's message."""
        found = {}
        for (name, gpu), text in sorted(self._unsupported.items()):
            if name == call:
                found[gpu] = text
        return found
