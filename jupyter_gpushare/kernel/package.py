"""`jupyter_gpushare` in a kernel whose environment does not have the package: the names for
notebooks, and nothing else.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from types import ModuleType

__all__ = ["gpu", "simgpu"]  # noqa: F822 - found by __getattr__


def __getattr__(name: str) -> ModuleType:
    """Imports a module for notebooks on first access."""
    if name == "kernel":
        return import_module("jupyter_gpushare.kernel")
    if name not in __all__:
        raise AttributeError(
            f"jupyter_gpushare has no {name!r} in this kernel: the package is not installed in its"
            f" environment; {' and '.join(__all__)} work without it"
        )
    return import_module(f"jupyter_gpushare.kernel.{name}")


def load_ipython_extension(ip: Any) -> None:
    """``%load_ext jupyter_gpushare``: the magics and the cell gate."""
    import_module("jupyter_gpushare.kernel.ipython_extension").load_ipython_extension(ip)


def unload_ipython_extension(ip: Any) -> None:
    """``%unload_ext jupyter_gpushare``."""
    import_module("jupyter_gpushare.kernel.ipython_extension").unload_ipython_extension(ip)
