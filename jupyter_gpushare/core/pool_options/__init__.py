"""The options of node pools, one module each. A new module here is a new option: it appears in
policy and scenario files, their schema, snapshots, comparisons of policies and the reference.

See `core.model.pool_option`.
"""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules

from ..model.pool_option import chosen, registered

__all__ = ["chosen", "registered"]

for _module in iter_modules(__path__):
    import_module(f"{__name__}.{_module.name}")
