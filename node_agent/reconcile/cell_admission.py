"""Sends waiting cells why they wait, and that they may run."""

from __future__ import annotations

from jupyter_gpushare.messages import CellAllowed, CellRefused, CellWait

from ..state.cell_requests import GateRequest
from ..state.kernel_record import KernelRecord
from ..state.node import NodeRuntime

__all__ = ["CellAdmission"]


class CellAdmission:
    """The cells of one node's kernels. Each waiting cell has its own request and text."""

    def __init__(self, node: NodeRuntime) -> None:
        self._node = node

    def admit(self, kernel: KernelRecord, n: int, now: int, *, without_gpu: bool = False) -> None:
        """The cell may run. `without_gpu`: its user chose not to wait for one."""
        request = kernel.gate.admit(n) or GateRequest(n, now)
        kernel.gate.running.add(n)
        kernel.memory.caches_deadline = None
        waited = now - request.since
        self._node.durations["gate_wait"].append(waited)
        message, kernel.memory.resumed_text = kernel.memory.resumed_text, ""
        body = CellAllowed(n=n, waited_ms=waited, message=message, without_gpu=without_gpu)
        self._node.ports.to_kernel(kernel.kernel_id, body)

    def admit_if_waiting(self, kernel: KernelRecord, n: int) -> None:
        """As `admit`, unless the cell was withdrawn meanwhile."""
        if n in kernel.gate.waiting:
            self.admit(kernel, n, self._node.clock())
        else:
            kernel.gate.running.discard(n)

    def refuse(self, kernel: KernelRecord, n: int, message: str) -> None:
        """The cell does not run."""
        kernel.gate.waiting.pop(n, None)
        self._node.ports.to_kernel(kernel.kernel_id, CellRefused(n=n, message=message))

    def show_wait(self, kernel: KernelRecord, text: str) -> None:
        """Send every waiting cell why it waits, where the text is new."""
        state = kernel.request_state if kernel.lease is None else None
        reason, position = (state.reason, state.position) if state else (None, None)
        for request in kernel.gate.waiting.values():
            if request.text != text:
                request.text = text
                body = CellWait(n=request.n, message=text, reason=reason, position=position)
                self._node.ports.to_kernel(kernel.kernel_id, body)
