"""Temperature and power that a simulated GPU shows: computed from its utilization."""

from __future__ import annotations

import math
from typing import Final

__all__ = ["SimulatedSensors"]

FULL_W: Final = {"A100": 400, "H100": 700, "H200": 700, "B200": 1000, "L40S": 350, "L4": 72}
"""Power limit by model, from the vendor's data sheets."""
DEFAULT_W: Final = 300
IDLE_FRACTION: Final = 0.15
IDLE_C: Final = 32.0
FULL_C: Final = 74.0
WARMS_UP_S: Final = 30.0
"""After this time, two thirds of a change of temperature have happened."""


class SimulatedSensors:
    """Of the GPUs of one node."""

    def __init__(self, model: str) -> None:
        self._full_w = FULL_W.get(model.upper(), DEFAULT_W)
        self._heat: dict[int, tuple[float, float]] = {}
        """GPU -> (°C, when in seconds)."""

    def read(self, gpu: int, utilization: float, now: float) -> tuple[int, int]:
        """(°C, watts). Utilization is 0..1 and counts since the previous reading."""
        goal = IDLE_C + (FULL_C - IDLE_C) * utilization
        before, then = self._heat.get(gpu, (IDLE_C, now))
        degrees = goal + (before - goal) * math.exp(-max(0.0, now - then) / WARMS_UP_S)
        self._heat[gpu] = degrees, now
        share = IDLE_FRACTION + (1 - IDLE_FRACTION) * utilization
        return round(degrees), round(self._full_w * share)
