"""Option `reserve_after`: a workload that waits for longer keeps nodes free for itself. The
reservation is made in `queueing.reservation`.
"""

from __future__ import annotations

from ..model.pool_option import Duration, PoolOption
from ..queueing.reservation import STARVATION_MS

__all__ = ["RESERVE_AFTER"]

RESERVE_AFTER = PoolOption(
    key="reserve_after",
    values=Duration(),
    default=None,
    documentation="A gang that waits for longer than this gets nodes reserved for it.",
    hook=STARVATION_MS,
    supply=lambda value: value,
)
