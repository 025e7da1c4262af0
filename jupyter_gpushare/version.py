"""The number of this program, as the build wrote it down. Below everything: whoever names it need
not import what finds the rest by name.
"""

from __future__ import annotations

__all__ = ["__version__"]

try:
    from jupyter_gpushare._version import __version__
except ImportError:  # a source tree that was never installed has no generated version
    __version__ = "0.0.0"
