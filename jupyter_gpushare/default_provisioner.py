"""Makes our provisioner jupyter_client's default in one Python environment.

`jupyter gpushare enable` writes a `.pth` file that calls `install` when Python starts. Unlike
JUPYTER_DEFAULT_PROVISIONER_NAME, this reaches no program of another environment, where the
provisioner may not be installed and no kernel would start. Only the standard library is used.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any, Final

__all__ = ["PROVISIONER", "PTH_NAME", "PTH_TEXT", "install"]

PROVISIONER: Final = "gpushare-provisioner"
FACTORY: Final = "jupyter_client.provisioning.factory"
VARIABLE: Final = "JUPYTER_DEFAULT_PROVISIONER_NAME"
PTH_NAME: Final = "jupyter_gpushare_default.pth"
PTH_TEXT: Final = (
    'import sys; exec("try:\\n from jupyter_gpushare.default_provisioner import install\\n'
    'except ImportError:\\n pass\\nelse:\\n install()")\n'
)
"""One line, as `site` requires. Without the package it does nothing."""


def install() -> None:
    """Change the default once jupyter_client's factory is imported."""
    if not any(isinstance(finder, _FactoryFinder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _FactoryFinder())


class _FactoryFinder:
    """Removes itself when the factory is imported."""

    def find_spec(self, name: str, path: Any = None, target: ModuleType | None = None) -> Any:
        """The factory's spec, with a loader that changes the default; None for all others."""
        del path, target
        if name != FACTORY:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.loader is not None:
            load = spec.loader.exec_module
            spec.loader.exec_module = lambda module: _loaded(load, module)  # type: ignore[method-assign]  # of this loader only
        return spec


def _loaded(load: Callable[[ModuleType], None], module: ModuleType) -> None:
    load(module)
    factory = getattr(module, "KernelProvisionerFactory", None)
    if factory is not None and _is_available():
        _change_default(factory)


def _is_available() -> bool:
    from importlib.metadata import entry_points

    return bool(entry_points(group="jupyter_client.kernel_provisioners", name=PROVISIONER))


def _change_default(factory: Any) -> None:
    """A configured name, and one in the environment, take precedence."""
    original = factory.__init__

    def __init__(self: Any, **kwargs: Any) -> None:  # noqa: N807 - replaces a method
        original(self, **kwargs)
        is_set = self.trait_has_value("default_provisioner_name")
        if not is_set and not os.environ.get(VARIABLE):
            self.default_provisioner_name = PROVISIONER

    factory.__init__ = __init__
