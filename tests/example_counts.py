"""How hard the tests try. `make test` tries everything; `make check` (GPUSHARE_QUICK=1) is for the
minute before a commit and tries less of the same.
"""

from __future__ import annotations

import os
from typing import Final

__all__ = ["IS_QUICK", "examples"]

IS_QUICK: Final = os.environ.get("GPUSHARE_QUICK") == "1"


def examples(full: int) -> int:
    """How many examples of a law: all of them, or an eighth and never fewer than ten."""
    return max(10, full // 8) if IS_QUICK else full
