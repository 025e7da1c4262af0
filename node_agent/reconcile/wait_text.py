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


def why(node: NodeRuntime, book: KernelRecord, step: WaitStep, now: int) -> str:
    """For the cell of this book."""
    story, left = node.story, None if step.until is None else max(0.0, (step.until - now) / 1000)
    blockers = [found for name in step.blockers if (found := node.books.get(name)) is not None]
    copying = next((one for one in [book, *blockers] if one.transit is not None), None)
    if copying is not None and left is None:
        return _copy(node, book, copying, now)
    if not book.attached:
        return story.waits_to_enter(left)
    strangers = max((node.foreign.get(gpu, 0) for gpu in book.home), default=0)
    return story.waits_for_room(
        [b for b in blockers if b.computes(now)], left, book.image(), strangers
    )


def _copy(node: NodeRuntime, book: KernelRecord, copying: KernelRecord, now: int) -> str:
    # The image may leave host memory before the copy is complete.
    story, mib = node.story, (copying.image() if copying.transit == "in" else 0) or copying.held()
    passed = now - copying.copying_since
    what = story.waits_for_copy(mib, own=copying is book, back=copying.transit == "in")
    if passed < SLOW_MS:
        return what
    seconds = passed // SLOW_MS * SLOW_MS // 1000
    return what + story.copy_is_slow(seconds, node.devices.copy_timeout_s(mib))
