"""`%load_ext jupyter_gpushare`: puts the gate and `%gpu` into a shell. Loads what every kernel
needs at its start, and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .session import hook_into, let_go_of

__all__ = ["load_ipython_extension", "unload_ipython_extension"]


def load_ipython_extension(ip: Any) -> None:
    """The magics and the gate. Loading it twice changes nothing."""
    if hook_into(ip):
        ip.register_magic_function(_late_magic(ip), magic_kind="line_cell", magic_name="gpu")


def unload_ipython_extension(ip: Any) -> None:
    """The gate goes; `%gpu` stays, and says what it can."""
    let_go_of(ip)


def _late_magic(ip: Any) -> Callable[..., Any]:
    """`%gpu` without its parsers and tables: they are loaded when it is first used, not while a
    kernel starts.
    """

    def gpu(line: str, cell: str | None = None) -> Any:
        """`%gpu` shows this notebook's share, `%gpu request 0.5` asks for one, `%%gpu 1.0` runs one
        cell with one.

        Verbs: status, request, release, wait, why, what-if, suspend, resume, pin, unpin, queue,
        nodes, history.
        """
        from .magics import GpuMagics

        return GpuMagics(ip).gpu(line, cell)

    return gpu
