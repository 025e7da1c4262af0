"""Messages name the options of the place where a person typed the request."""

from __future__ import annotations

import pytest

from jupyter_gpushare.kernel.option_names import COMMAND_OPTIONS, MAGIC_OPTIONS, with_options

CASES = {
    "gpu_memory needs a unit: 20GiB or 20MiB": (
        "--memory needs a unit: 20GiB or 20MiB",
        "--gpu-memory needs a unit: 20GiB or 20MiB",
    ),
    "gpu_limit must be at least gpu (0.5), got 0.2": (
        "--limit must be at least SHARE (0.5), got 0.2",
        "--gpu-limit must be at least --gpu (0.5), got 0.2",
    ),
    "gpu and gpu_memory exclude each other": (
        "SHARE and --memory exclude each other",
        "--gpu and --gpu-memory exclude each other",
    ),
    "request one with `%gpu request 0.5` on /dev/gpu": (
        "request one with `%gpu request 0.5` on /dev/gpu",
        "request one with `%gpu request 0.5` on /dev/gpu",
    ),
}


@pytest.mark.parametrize(("message", "expected"), CASES.items(), ids=CASES)
def test_fields_are_shown_as_options(message, expected):
    magic, command = expected
    assert with_options(message, MAGIC_OPTIONS) == magic
    assert with_options(message, COMMAND_OPTIONS) == command
