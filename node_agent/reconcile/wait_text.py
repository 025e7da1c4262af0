"""Why a cell waits, from what the reclaim ladder decided: what blocks it, what is in progress, for
how long, until when.
"""

from __future__ import annotations

from typing import Final

from ..policy.reclaim_steps import WaitStep
from ..state.kernel_record import KernelRecord, have_same_user
from ..state.node import NodeRuntime

__all__ = ["wait_text"]

SLOW_MS: Final = 5_000
"""A copy that takes so long is mentioned, and again after each such time."""


def wait_text(node: NodeRuntime, kernel: KernelRecord, step: WaitStep, now: int) -> str:
    """For the waiting cells of this kernel."""
    left = None if step.until is None else max(0.0, (step.until - now) / 1000)
    blockers = [node.kernels[name] for name in step.blockers if name in node.kernels]
    copying = next((one for one in [kernel, *blockers] if one.memory.transit is not None), None)
    if copying is not None and left is None:
        return _copy_text(node, kernel, copying, now)
    if not kernel.assignment.attached:
        return node.text.waits_to_attach(left)
    own = next((one for one in blockers if _is_resident(one, kernel, now)), None)
    if own is not None and left is None:
        return node.text.waits_for_own_notebook(own, (own.residence.until - now) / 1000)
    foreign = [node.foreign.get(gpu, 0) for gpu in kernel.assignment.assigned_gpus]
    running = [one for one in blockers if one.computes(now)]
    saved = kernel.memory.saved_mib
    return node.text.waits_for_room(running, left, saved, max(foreign, default=0))


def _is_resident(blocker: KernelRecord, kernel: KernelRecord, now: int) -> bool:
    is_busy = blocker.is_running(now) and bool(blocker.name)
    return now < blocker.residence.until and is_busy and have_same_user(blocker, kernel)


def _copy_text(node: NodeRuntime, kernel: KernelRecord, copying: KernelRecord, now: int) -> str:
    memory, is_back = copying.memory, copying.memory.transit == "in"
    # The image may leave host memory before the copy is complete.
    mib = (memory.saved_mib if is_back else 0) or memory.used_mib
    passed = now - memory.copying_since
    what = node.text.waits_for_copy(mib, own=copying is kernel, back=is_back)
    if passed < SLOW_MS:
        return what
    seconds = passed // SLOW_MS * SLOW_MS // 1000
    return what + node.text.copy_is_slow(seconds, node.devices.copy_timeout_s(mib))
