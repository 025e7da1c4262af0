"""Messages of a kernel about its cells: start, end, cancel."""

from __future__ import annotations

from typing import Final

from jupyter_gpushare.messages import CellAllowed, CellStart

from ..reconcile.idle_culler import request_again
from ..reconcile.reconciler import Reconciler
from ..state.kernel_record import KernelRecord
from ..state.node import NodeRuntime

__all__ = ["CellHandlers"]

CANCELLED: Final = "the request for a GPU was cancelled. Later cells run without a GPU."


class CellHandlers:
    """Cells of one node's kernels."""

    def __init__(self, node: NodeRuntime, reconciler: Reconciler) -> None:
        self._node, self._reconciler = node, reconciler

    def start(self, kernel: KernelRecord, body: CellStart) -> None:
        """A cell asks whether it may run, or reports that it runs."""
        gate = kernel.gate
        gate.unsure_until = 0
        if body.running:
            self._runs_already(kernel, body)
            return
        if body.exempt:
            self._node.ports.to_kernel(kernel.kernel_id, CellAllowed(n=body.n))
            return
        if body.wait:
            gate.gave_up = False
        if kernel.process.killing:
            message = "The kernel is about to be restarted."
            self._reconciler.cells.refuse(kernel, body.n, message)
        elif kernel.assignment.active_lease is None:
            self._start_without_lease(kernel, body.n)
        else:
            self._start_with_lease(kernel, body.n)

    def _runs_already(self, kernel: KernelRecord, body: CellStart) -> None:
        """It began while the connection was broken, and may wait in the driver."""
        kernel.gate.running.add(body.n)
        if body.wait:
            kernel.preferences.suspended_by_user = False
        self._node.wake()

    def _start_without_lease(self, kernel: KernelRecord, n: int) -> None:
        now = self._node.clock()
        if kernel.gate.gave_up or not kernel.wants_gpu():
            self._reconciler.cells.admit(kernel, n, now)
            return
        kernel.gate.ask(n, now)
        request_again(self._node, kernel, now)
        self._show_pending(kernel)
        self._node.wake()

    def _start_with_lease(self, kernel: KernelRecord, n: int) -> None:
        if kernel.memory.suspended:
            kernel.preferences.suspended_by_user = False
        request = kernel.gate.ask(n, self._node.clock())
        self._reconciler.try_step()
        is_quiet = not request.text and not self._reconciler.is_checking(kernel)
        if n in kernel.gate.waiting and is_quiet:
            self._reconciler.cells.show_wait(kernel, self._node.text.waits_to_attach())

    def _show_pending(self, kernel: KernelRecord) -> None:
        """The state of its request at the scheduler."""
        state, text = kernel.request_state, self._node.text
        if state is not None and not state.pending:
            self._reconciler.cells.show_wait(kernel, text.waits_to_attach())
            return
        reason, wait = (state.reason, state.expected_wait) if state else (None, None)
        message = reason.message if reason else ""
        if reason is not None and reason.code == "WaitingForTurn":
            seconds = wait.seconds_median if wait is not None else None
            shown = text.waits_for_turn(message, seconds)
        elif kernel.is_parked and reason is not None and reason.code == "Held":
            shown = text.waits_for_turn()
        else:
            shown = text.waits_for_grant(message, wait.message if wait else "")
        self._reconciler.cells.show_wait(kernel, shown)

    def request_changed(self, kernel: KernelRecord, refusal: str) -> None:
        """The state of its request changed while cells wait for it."""
        if not kernel.gate.waiting or kernel.lease is not None:
            return
        if kernel.wants_gpu():
            self._show_pending(kernel)
            return
        for n in list(kernel.gate.waiting):
            self._reconciler.cells.refuse(kernel, n, refusal or CANCELLED)

    def end(self, kernel: KernelRecord, n: int) -> None:
        """A cell has ended."""
        kernel.gate.end(n, self._node.clock())
        self._node.wake()

    def cancel(self, kernel: KernelRecord, n: int) -> None:
        """The user interrupted the wait of a cell."""
        if n in kernel.gate.waiting:
            kernel.gate.gave_up = kernel.lease is None
            self._reconciler.cells.refuse(kernel, n, "The wait for the GPU was cancelled.")
        kernel.gate.running.discard(n)
        self._node.wake()
