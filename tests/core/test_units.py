"""Text form of amounts."""

from __future__ import annotations

import functools
from collections.abc import Callable

import pytest

from jupyter_gpushare.core.model.amounts import UNLIMITED
from jupyter_gpushare.core.model.errors import InvalidInput
from jupyter_gpushare.core.model.units import (
    gpu_text,
    memory_text,
    read_cpu,
    read_duration,
    read_gpu,
    read_memory,
)

READ = {
    "a tenth is exact": (read_gpu(0.1), 100),
    "text like a number": (read_gpu("0.5"), 500),
    "finer than milli is cut": (read_gpu(0.33335), 333),
    "a third of a float": (read_gpu(1 / 3), 333),
    "just below a whole stays a fraction": (read_gpu("0.9999"), 999),
    "cores": (read_cpu(1.5), 1500),
    "milli cores": (read_cpu("500m"), 500),
    "the word": (read_cpu("unlimited", unlimited=True), UNLIMITED),
    "GiB": (read_memory("20GiB"), 20_480),
    "half a TiB, spaced": (read_memory(" 0.5 TiB "), 524_288),
    "decimal units are decimal": (read_memory("1GB"), 954),
    "zero needs no unit": (read_memory(0), 0),
    "zero needs no unit in a request": (read_memory(0, needs_unit=True), 0),
    "bytes are a unit": (read_memory("1048576B", needs_unit=True), 1),
    "bare": (read_memory(1024), 1024),
    "seconds": (read_duration("30s"), 30_000),
    "bare seconds": (read_duration(1.5), 1500),
    "days": (read_duration("7d"), 604_800_000),
    "an age": (read_duration("-5m"), -300_000),
}


@pytest.mark.parametrize(("got", "expected"), READ.values(), ids=READ)
def test_reading(got: int, expected: int) -> None:
    assert got == expected


request_memory = functools.partial(read_memory, needs_unit=True)
REFUSED: dict[str, tuple[Callable[[object], int], object, str]] = {
    "nan": (read_gpu, float("nan"), "must be a number"),
    "nan in text": (read_gpu, "nan", "must be a number"),
    "infinity": (read_cpu, float("inf"), "must be cores"),
    "negative": (read_gpu, -1, "not be negative, got -1"),
    "negative milli": (read_cpu, "-5m", "negative"),
    "far too many": (read_gpu, 7e9, "is too many GPUs"),
    "a huge exponent is not computed": (read_gpu, "1e999999999", "must be a number"),
    "a huge exponent with a unit": (read_memory, "1e999999GiB", "must be a size"),
    "next to nothing": (read_gpu, 0.0001, "at least 0.001"),
    "true is not 1": (read_gpu, True, "got True"),
    "a list": (read_gpu, [1], "must be a number"),
    "unlimited where nothing is": (read_gpu, "unlimited", "must be a number"),
    "unknown unit": (read_memory, "5GiBi", "must be a size"),
    "negative memory": (read_memory, "-5GiB", "negative"),
    "a request without a unit": (request_memory, "20", "needs a unit: 20GiB or 20MiB"),
    "a number where a unit is needed": (
        request_memory,
        40960,
        "needs a unit: 40960GiB or 40960MiB",
    ),
    "two dots": (read_memory, "1.2.3GiB", "must be a size"),
    "capital M is not minutes": (read_duration, "5M", "must be a time"),
    "a time without end": (read_duration, "1e99d", "out of range"),
    "words": (read_duration, "soon", "must be a time"),
}


@pytest.mark.parametrize(("read", "value", "message"), REFUSED.values(), ids=REFUSED)
def test_refusing(read: Callable[[object], int], value: object, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        read(value)


def test_writing_reads_back() -> None:
    assert [gpu_text(500), gpu_text(2000), gpu_text(UNLIMITED)] == ["0.5", "2", "unlimited"]
    assert [memory_text(512), memory_text(31_232), memory_text(81_920)] == [
        "512 MiB",
        "30.5 GiB",
        "80 GiB",
    ]
