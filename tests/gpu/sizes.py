"""Input of a part of the measurements, and the form of its results."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

__all__ = ["GIB", "MIB", "Sizes", "Row", "text_of"]

GIB: Final = 1 << 30
MIB: Final = 1 << 20
Row = dict[str, Any]


@dataclass(frozen=True)
class Sizes:
    """Sizes of copies in bytes; `total`: memory of GPU 0."""

    sizes: tuple[int, ...]
    total: int

    @property
    def small(self) -> int:
        return self.sizes[0]

    @property
    def middle(self) -> int:
        return self.sizes[min(1, len(self.sizes) - 1)]


def text_of(path: str) -> str:
    """Content of a system file in one line, or the error in brackets."""
    try:
        return Path(path).read_text().strip().replace("\n", "; ") or "(empty)"
    except OSError as error:
        return f"({error.strerror})"
