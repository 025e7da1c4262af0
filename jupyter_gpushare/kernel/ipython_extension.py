"""`%load_ext jupyter_gpushare`: adds the cell gate and `%gpu` to a shell. Loads only what every
kernel needs when it starts.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .magics.usage import OVERVIEW
from .session import install, uninstall

__all__ = ["load_ipython_extension", "unload_ipython_extension"]


def load_ipython_extension(ip: Any) -> None:
    """Add the magics and the gate. Loading twice changes nothing."""
    if install(ip):
        ip.register_magic_function(_late_magic(ip), magic_kind="line_cell", magic_name="gpu")


def unload_ipython_extension(ip: Any) -> None:
    """Remove the gate. `%gpu` stays."""
    uninstall(ip)


def _late_magic(ip: Any) -> Callable[..., Any]:
    """`%gpu`, which loads its parsers and tables on first use."""

    def gpu(line: str, cell: str | None = None) -> Any:
        from .magics.line_magic import gpu_magic

        return gpu_magic(ip, line, cell)

    gpu.__doc__ = OVERVIEW  # printed by `%gpu?`
    return gpu
