"""Replaces JAX: reads the environment once, when its backend starts; two names of one flag are
an error, as in jaxlib.
"""

from __future__ import annotations

import os

__all__ = ["config", "devices", "options"]

options: dict[str, str] = {}


class _Config:
    """Flags by name: `read` and `update`, as jax/_src/config.py has them."""

    def __init__(self) -> None:
        self._values = {
            "jax_cuda_visible_devices": os.environ.get("JAX_CUDA_VISIBLE_DEVICES", "all")
        }

    def read(self, name: str) -> str:
        """Raises KeyError for an unknown flag."""
        return self._values[name]

    def update(self, name: str, value: str) -> None:
        """Before the backend starts."""
        self._values[name] = value


config = _Config()


def devices() -> list[str]:
    """Starts the backend."""
    fraction, old = (
        os.environ.get("XLA_CLIENT_MEM_FRACTION", ""),
        os.environ.get("XLA_PYTHON_CLIENT_MEM_FRACTION", ""),
    )
    if fraction and old:
        raise ValueError(
            "XLA_CLIENT_MEM_FRACTION is specified together with XLA_PYTHON_CLIENT_MEM_FRACTION. "
            "Remove the latter one, it is deprecated."
        )
    if not options:
        options.update(
            fraction=fraction or old or "0.75",
            preallocate=os.environ.get("XLA_PYTHON_CLIENT_PREALLOCATE", "true"),
        )
    return ["cuda:0"]
