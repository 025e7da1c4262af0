"""One `execute_request`: what its client sees of it before the kernel receives it."""

from __future__ import annotations

import time
import uuid
from collections.abc import Sequence
from typing import Any, Final, Protocol

from ..kernel.display.output import box_html
from .messages import Frames, Request, Signer

__all__ = ["ProxiedCellOutput", "HeldCell", "SHOW_AFTER_S", "is_exempt"]

SHOW_AFTER_S: Final = 0.25
"""A shorter wait shows nothing."""
REFUSED: Final = "CellNotRun"
RECLAIMED: Final = "GpuReclaimed"


class ClientSockets(Protocol):
    """Sends to the clients of a channel."""

    def to_clients(self, channel: str, frames: Frames | Sequence[bytes]) -> None: ...


def is_exempt(code: str) -> bool:
    """Whether a cell begins with `%gpu`, which must not wait for a GPU."""
    return code.lstrip().split(maxsplit=1)[:1] in (["%gpu"], ["%%gpu"])


class ProxiedCellOutput:
    """Messages that the kernel would send for a cell."""

    def __init__(self, sockets: ClientSockets, signer: Signer) -> None:
        self._sockets, self._signer = sockets, signer
        self.execution_count = 0
        """Of the kernel's last reply."""

    def status(self, request: Request, state: str) -> None:
        """`busy` or `idle`."""
        self._publish(request, "status", {"execution_state": state})

    def show(
        self, request: Request, text: str, *, display_id: str | None = None, update: bool = False
    ) -> None:
        """A message under the cell; with `update` it replaces the one that has this id."""
        data = {"text/plain": text, "text/html": box_html(text, "info") if text else ""}
        content = {
            "data": data,
            "metadata": {},
            "transient": {"display_id": display_id} if display_id else {},
        }
        self._publish(request, "update_display_data" if update else "display_data", content)

    def warn(self, request: Request, text: str) -> None:
        """A warning under the cell."""
        data = {"text/plain": text, "text/html": box_html(text, "warning")}
        self._publish(request, "display_data", {"data": data, "metadata": {}, "transient": {}})

    def refuse(self, request: Request, text: str) -> None:
        """The cell fails in place of being executed."""
        self._fail(request, REFUSED, text)

    def reclaim(self, request: Request, text: str) -> None:
        """The running cell ends, because its kernel is about to restart."""
        self._fail(request, RECLAIMED, text)

    def _fail(self, request: Request, name: str, text: str) -> None:
        error = {"ename": name, "evalue": text, "traceback": [f"{name}: {text}"]}
        self._publish(request, "error", error)
        self._reply(request, {"status": "error", **error, "payload": [], "user_expressions": {}})

    def abort(self, request: Request) -> None:
        """A cell before it failed, and the client asked to stop then."""
        self._reply(request, {"status": "aborted"})

    def _reply(self, request: Request, content: dict[str, Any]) -> None:
        content = {**content, "execution_count": self.execution_count}
        reply = self._signer.message(request.idents, "execute_reply", content, request.raw_header)
        self._sockets.to_clients("shell", reply)
        self.status(request, "idle")

    def _publish(self, request: Request, kind: str, content: dict[str, Any]) -> None:
        message = self._signer.message([kind.encode()], kind, content, request.raw_header)
        self._sockets.to_clients("iopub", message)


class HeldCell:
    """One request, from its arrival to the kernel's reply."""

    def __init__(self, request: Request, frames: Frames) -> None:
        content = request.content
        self.request, self.frames = request, frames
        self.silent = bool(content.get("silent", False))
        self.stops_on_error = bool(content.get("stop_on_error", True)) and not self.silent
        self.exempt = self.silent or is_exempt(str(content.get("code", "")))
        """Never asks the agent."""
        self.since = time.monotonic()
        self.n: int | None = None
        """Number of its request to the agent, or of its permission."""
        self.asked = False
        self.sentence = ""
        """Why it waits, as the agent said last."""
        self._display_id: str | None = None
        self._shown = ""
        self._is_busy = False

    @property
    def is_shown(self) -> bool:
        """Whether its client sees that it waits."""
        return self._display_id is not None

    def waited_s(self) -> float:
        """Seconds since its arrival."""
        return time.monotonic() - self.since

    def show_wait(self, output: ProxiedCellOutput, text: str) -> None:
        """Show or update why it waits, once the wait is not short any more."""
        if not text or self.waited_s() < SHOW_AFTER_S or text == self._shown:
            return
        self.show_busy(output)
        update = self._display_id is not None
        self._display_id = self._display_id or f"gpushare-{uuid.uuid4().hex}"
        self._shown = text
        output.show(self.request, text, display_id=self._display_id, update=update)

    def end_wait(self, output: ProxiedCellOutput, text: str) -> None:
        """Replace the text, if there is one; "": remove it."""
        if self._display_id is not None:
            output.show(self.request, text, display_id=self._display_id, update=True)
            self._display_id = None

    def say(self, output: ProxiedCellOutput, text: str) -> None:
        """End the wait with a text that is shown in any case."""
        if self._display_id is None:
            self.show_busy(output)
            output.show(self.request, text)
        self.end_wait(output, text)

    def show_busy(self, output: ProxiedCellOutput) -> None:
        """The kernel counts as busy while the cell waits."""
        if not self._is_busy:
            self._is_busy = True
            output.status(self.request, "busy")
