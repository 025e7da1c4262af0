"""Share GPUs between notebooks.

Jupyter, IPython and notebooks look up these names. All of them are imported lazily, since a kernel
that runs ``from jupyter_gpushare import gpu`` must not load the server's dependencies.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from jupyter_gpushare.version import __version__

if TYPE_CHECKING:
    from types import ModuleType

__all__ = ["__version__", "gpu", "simgpu"]

_NOTEBOOK_NAMES = {"gpu": "jupyter_gpushare.kernel.gpu", "simgpu": "jupyter_gpushare.kernel.simgpu"}


def __getattr__(name: str) -> ModuleType:
    """Imports a module for notebooks on first access."""
    if name not in _NOTEBOOK_NAMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return import_module(_NOTEBOOK_NAMES[name])


def _jupyter_labextension_paths() -> list[dict[str, str]]:
    """The built JupyterLab extension, for ``jupyter labextension develop``."""
    return [{"src": "labextension", "dest": "jupyter-gpushare"}]


def _jupyter_server_extension_points() -> list[dict[str, Any]]:
    """The server extension, for ``jupyter server extension``."""
    extension = import_module("jupyter_gpushare.server_extension.extension")
    return [{"module": "jupyter_gpushare", "app": extension.GpuShareExtension}]


def load_ipython_extension(ip: Any) -> None:
    """``%load_ext jupyter_gpushare``: the magics and the cell gate."""
    import_module("jupyter_gpushare.kernel.ipython_extension").load_ipython_extension(ip)


def unload_ipython_extension(ip: Any) -> None:
    """``%unload_ext jupyter_gpushare``."""
    import_module("jupyter_gpushare.kernel.ipython_extension").unload_ipython_extension(ip)
