"""Why a cell waits, in one sentence, out of what the ladder said about it: who is in the way, what
is under way, for how long, until when.
"""

from __future__ import annotations

from typing import Final

from ..policy.reclaim_ladder import WaitStep
from ..state.kernel_record import KernelRecord
from ..state.node import NodeRuntime

__all__ = ["why"]

SLOW_MS: Final = 5_000
"""A copy that takes so long is said to; and again after each such time."""


def why(node: NodeRuntime, kernel: KernelRecord, step: WaitStep, now: int) -> str:
    """For the cell of this book."""
    text, left = node.text, None if step.until is None else max(0.0, (step.until - now) / 1000)
    blockers = [found for name in step.blockers if (found := node.kernels.get(name)) is not None]
    copying = next((one for one in [kernel, *blockers] if one.memory.transit is not None), None)
    if copying is not None and left is None:
        return _copy(node, kernel, copying, now)
    if not kernel.assignment.attached:
        return text.waits_to_enter(left)
    strangers = max(
        (node.foreign.get(gpu, 0) for gpu in kernel.assignment.assigned_gpus), default=0
    )
    return text.waits_for_room(
        [b for b in blockers if b.computes(now)], left, kernel.memory.saved_mib, strangers
    )


def _copy(node: NodeRuntime, kernel: KernelRecord, copying: KernelRecord, now: int) -> str:
    # The image may leave host memory before the copy is complete.
    text, mib = (
        node.text,
        (copying.memory.saved_mib if copying.memory.transit == "in" else 0)
        or copying.memory.used_mib,
    )
    passed = now - copying.memory.copying_since
    what = text.waits_for_copy(mib, own=copying is kernel, back=copying.memory.transit == "in")
    if passed < SLOW_MS:
        return what
    seconds = passed // SLOW_MS * SLOW_MS // 1000
    return what + text.copy_is_slow(seconds, node.devices.copy_timeout_s(mib))
