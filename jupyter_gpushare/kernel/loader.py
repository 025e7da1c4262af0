"""Loads this package from its folder into a kernel, under its usual name.

`startup` executes this file by its path, so it imports nothing of the package itself.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from types import ModuleType
from typing import Any, Final

__all__ = ["load"]

PACKAGE: Final = "jupyter_gpushare"
KERNEL: Final = "jupyter_gpushare.kernel"


def load(folder: str, shell: Any) -> None:
    """Load the extension from `folder` into an IPython shell. Does nothing if another copy of the
    package was loaded before, by the user's IPython configuration.
    """
    if KERNEL in sys.modules:
        return
    if not _is_installed_here(folder):
        _load_from(folder)
    importlib.import_module(f"{KERNEL}.ipython_extension").load_ipython_extension(shell)


def _is_installed_here(folder: str) -> bool:
    """Whether the environment of the kernel finds exactly this copy."""
    spec = importlib.util.find_spec(PACKAGE)
    if spec is None or not spec.origin:
        return False
    installed = os.path.join(os.path.dirname(spec.origin), "kernel")
    return os.path.realpath(installed) == os.path.realpath(folder)


def _load_from(folder: str) -> None:
    kernel = _module(KERNEL, os.path.join(folder, "__init__.py"), folder)
    if importlib.util.find_spec(PACKAGE) is None:
        sys.meta_path.append(_PackageFinder(folder))
        return
    # Another version is installed: `from jupyter_gpushare import gpu` has to find this copy.
    importlib.import_module(PACKAGE).kernel = kernel  # type: ignore[attr-defined]  # see above


def _module(name: str, path: str, folder: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, path, submodule_search_locations=[folder])
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


class _PackageFinder:
    """Finds `jupyter_gpushare` in an environment that does not have it. The last finder: a package
    that is installed later takes precedence.
    """

    def __init__(self, folder: str) -> None:
        self._path = os.path.join(folder, "package.py")

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        """The spec of the package; None for all other names."""
        del path, target
        if name != PACKAGE:
            return None
        # no search locations: the environment has no other part of the package
        return importlib.util.spec_from_file_location(
            name, self._path, submodule_search_locations=[]
        )
