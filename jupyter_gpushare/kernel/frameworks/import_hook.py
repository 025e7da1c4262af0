"""Calls back when a framework has been imported, before the code of the user can use it."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Callable
from types import ModuleType
from typing import Any, Final

__all__ = ["ImportHook"]

WATCHED: Final = frozenset({"torch", "cupy", "jax"})


class ImportHook:
    """The first finder on `sys.meta_path`. It compares names and leaves finding to the others."""

    def __init__(self, imported: Callable[[str], None]) -> None:
        self._imported = imported
        self._searching = threading.local()

    def install(self) -> None:
        """Watch imports."""
        sys.meta_path.insert(0, self)

    def uninstall(self) -> None:
        """Stop watching."""
        with contextlib.suppress(ValueError):
            sys.meta_path.remove(self)

    def find_spec(self, name: str, path: Any = None, target: ModuleType | None = None) -> Any:
        """None, except for the watched names: their spec, with a loader that calls back."""
        if name not in WATCHED or getattr(self._searching, "now", False):
            return None
        self._searching.now = True
        try:
            spec = self._spec_of_others(name, path, target)
        finally:
            self._searching.now = False
        with contextlib.suppress(Exception):
            self._call_after_load(spec, name)
        return spec

    def _spec_of_others(self, name: str, path: Any, target: ModuleType | None) -> Any:
        for finder in sys.meta_path:
            find = getattr(finder, "find_spec", None)
            if finder is self or find is None:
                continue
            spec = find(name, path, target)
            if spec is not None:
                return spec
        return None

    def _call_after_load(self, spec: Any, name: str) -> None:
        load = spec.loader.exec_module

        def exec_module(module: ModuleType) -> None:
            load(module)
            with contextlib.suppress(Exception):
                self._imported(name)

        spec.loader.exec_module = exec_module
