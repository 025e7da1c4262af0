"""How many examples property tests use: all of them in `make test`, fewer in `make check`
(GPUSHARE_QUICK=1).
"""

from __future__ import annotations

import os
from typing import Final

__all__ = ["IS_QUICK", "examples"]

IS_QUICK: Final = os.environ.get("GPUSHARE_QUICK") == "1"


def examples(full: int) -> int:
    """The number of examples of a property test: `full`, or an eighth of it, at least ten."""
    return max(10, full // 8) if IS_QUICK else full
