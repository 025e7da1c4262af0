"""The version of this package, as the build recorded it. Imports nothing else of the package."""

from __future__ import annotations

__all__ = ["__version__"]

try:
    from jupyter_gpushare._version import __version__
except ImportError:  # a source tree that was never installed has no generated version
    __version__ = "0.0.0"
