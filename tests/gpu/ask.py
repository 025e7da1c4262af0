"""What a part of the measurements is told, and the form of what it says."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

__all__ = ["GIB", "MIB", "Ask", "Row", "text_of"]

GIB: Final = 1 << 30
MIB: Final = 1 << 20
Row = dict[str, Any]


@dataclass(frozen=True)
class Ask:
    """What a part is told: sizes are bytes; `total`: of GPU 0."""

    sizes: tuple[int, ...]
    total: int

    @property
    def small(self) -> int:
        return self.sizes[0]

    @property
    def middle(self) -> int:
        return self.sizes[min(1, len(self.sizes) - 1)]


def text_of(path: str) -> str:
    """Of a file of the system, in one line; why not, in brackets."""
    try:
        return Path(path).read_text().strip().replace("\n", "; ") or "(empty)"
    except OSError as error:
        return f"({error.strerror})"
