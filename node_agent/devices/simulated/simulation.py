"""Reads what `--simulate` asks for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from jupyter_gpushare.core.model.errors import InvalidInput
from jupyter_gpushare.core.model.units import read_memory

__all__ = ["Simulation", "read_simulation"]

MODEL_MEMORY: Final = {
    "A100": "80GiB",
    "H100": "80GiB",
    "H200": "141GiB",
    "B200": "180GiB",
    "L40S": "48GiB",
    "L4": "24GiB",
    "T4": "16GiB",
    "V100": "32GiB",
}
DEFAULT_MEMORY: Final = "80GiB"
"""Of a model that is not in the table."""
MAX_GPUS: Final = 64


@dataclass(frozen=True, slots=True)
class Simulation:
    """What to simulate. `copy_gib_s`: speed of saving and restoring; 0: copies take no time."""

    model: str = "A100"
    count: int = 2
    memory_mib: int = 80 * 1024
    copy_gib_s: float = 100.0


def read_simulation(
    text: str, *, memory: str | None = None, copy_gib_s: float = 100.0
) -> Simulation:
    """`A100:2`, `A100-40GB:2` (model and number) or `2`. Raises InvalidInput."""
    model, number = _model_and_number(text)
    if not number.isdecimal() or not 0 < int(number) <= MAX_GPUS:
        raise InvalidInput(
            f"--simulate must be MODEL:N with 1 to {MAX_GPUS} GPUs, such as A100:2, got {text!r}",
            field="simulate",
        )
    model, suffix = _model_and_size(model or "A100")
    size = memory or suffix or MODEL_MEMORY.get(model.upper(), DEFAULT_MEMORY)
    return Simulation(model, int(number), read_memory(size, what="gpu memory"), copy_gib_s)


def _model_and_number(text: str) -> tuple[str, str]:
    if ":" in text:
        model, _, number = text.rpartition(":")
        return model, number
    return ("", text) if text.isdecimal() else (text, "1")


def _model_and_size(text: str) -> tuple[str, str | None]:
    """`A100-80GB` contains the memory, in the units of vendors (their GB are GiB)."""
    model, _, size = text.rpartition("-")
    if model and size.upper().endswith("GB") and size[:-2].isdecimal():
        return model, f"{size[:-2]}GiB"
    return text, None
