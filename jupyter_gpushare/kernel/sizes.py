"""Amounts of memory as text, as `jupyter_gpushare.core.model.units` reads and writes them (compared
in `tests/kernel/test_sizes.py`): a kernel loads nothing outside of this package.
"""

from __future__ import annotations

import re
from typing import Final

__all__ = ["MIB", "memory_text", "size_in_bytes"]

MIB: Final = 1 << 20
_KI: Final = 1024
_UNITS: Final = {
    "": MIB,
    "B": 1,
    "KiB": _KI,
    "MiB": _KI**2,
    "GiB": _KI**3,
    "TiB": _KI**4,
    "KB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "TB": 10**12,
    "Ki": _KI,
    "Mi": _KI**2,
    "Gi": _KI**3,
    "Ti": _KI**4,
}
_NUMBER_AND_UNIT: Final = re.compile(
    r"\s*([+-]?[0-9]*\.?[0-9]+(?:[eE][+-]?[0-9]{1,2})?)\s*([A-Za-z]*)\s*"
)


def size_in_bytes(text: str, *, what: str = "size") -> int:
    """Bytes of an amount with a unit (`6GiB`), rounded up. A number without a unit is MiB.

    Raises:
        ValueError: the text is no amount.
    """
    from fractions import Fraction  # not needed when a kernel starts

    match = _NUMBER_AND_UNIT.fullmatch(text)
    if match is None or match[2] not in _UNITS:
        raise ValueError(f"{what} must be a size such as 20GiB or 512MiB, got {text!r}")
    size = Fraction(match[1]) * _UNITS[match[2]]
    return -int(-size // 1)


def memory_text(mib: int) -> str:
    """MiB as text: `70 GiB`, `512 MiB`, `30.5 GiB`."""
    if abs(mib) < _KI:
        return f"{mib} MiB"
    return f"{mib / _KI:.1f}".rstrip("0").rstrip(".") + " GiB"
