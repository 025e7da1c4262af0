"""The amounts of a GPU request: read and checked with the same rules and messages wherever a
request enters (kernelspec, REST, scenario file).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from .amounts import GPU
from .errors import InvalidInput
from .units import gpu_text, read_gpu, read_memory

__all__ = ["GpuRequest", "check_amounts", "read_gpu_request"]


class GpuRequest(NamedTuple):
    """The amounts of one pod, per device."""

    gpu: int
    """Milli-GPU; 0 for a request in MiB, or none."""
    memory: int | None
    """MiB; None for a request in GPUs."""
    limit: int
    """Burst limit in milli-GPU."""


def read_gpu_request(
    gpu: object = None,
    gpu_memory: object = None,
    gpu_limit: object = None,
    *,
    where: str = "",
    needs_unit: bool = False,
) -> GpuRequest:
    """Reads amounts as a user writes them; None: not set.

    Args:
        where: Prefix of the field names in errors (`pods[0].`).
        needs_unit: Refuse memory without a unit.

    Raises:
        InvalidInput: an amount cannot be read, or the amounts contradict each other.
    """
    milli = 0 if gpu is None else _read("gpu", where, lambda: read_gpu(gpu))
    memory = None
    if gpu_memory is not None:
        memory = _read(
            "gpu_memory",
            where,
            lambda: read_memory(gpu_memory, what="gpu_memory", needs_unit=needs_unit),
        )
    both = gpu is not None and memory is not None
    check_amounts(milli, memory, is_both=both, where=where)
    return GpuRequest(milli, memory, _limit(gpu_limit, milli, where))


def check_amounts(gpu: int, memory: int | None, *, is_both: bool = False, where: str = "") -> None:
    """Checks milli-GPU and MiB of a request. Raises InvalidInput."""
    if is_both or (gpu and memory is not None):
        raise InvalidInput("gpu and gpu_memory exclude each other", field=f"{where}gpu_memory")
    if gpu < 0:
        raise InvalidInput(f"gpu must not be negative, got {gpu / GPU:g}", field=f"{where}gpu")
    if gpu > GPU and gpu % GPU:
        text = f"gpu above 1 must be a whole number, got {gpu / GPU:g}"
        raise InvalidInput(text, field=f"{where}gpu")
    if memory is not None and memory <= 0:
        text = f"gpu_memory must be more than 0, got {memory} MiB"
        raise InvalidInput(text, field=f"{where}gpu_memory")


def _limit(given: object, request: int, where: str) -> int:
    """Per device; without one, the whole device."""
    if given is None:
        return GPU
    field = f"{where}gpu_limit"
    limit = _read("gpu_limit", where, lambda: read_gpu(given, what="gpu_limit"))
    if limit <= 0:
        raise InvalidInput(f"gpu_limit must be more than 0, got {given}", field=field)
    if request > GPU and limit != request:
        text = f"gpu_limit of several GPUs must equal gpu ({gpu_text(request)}), got {given}"
        raise InvalidInput(text, field=field)
    if request > GPU:
        return GPU
    if limit < request:
        text = f"gpu_limit must be at least gpu ({gpu_text(request)}), got {given}"
        raise InvalidInput(text, field=field)
    if limit > GPU:
        raise InvalidInput(f"gpu_limit must be at most 1, got {given}", field=field)
    return limit


def _read(name: str, where: str, read: Callable[[], int]) -> int:
    try:
        return read()
    except InvalidInput as error:
        raise InvalidInput(error.message, field=f"{where}{name}") from None
