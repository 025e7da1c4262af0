"""Shows messages under the cells of a notebook, from any thread."""

from __future__ import annotations

import contextlib
import html
import re
import uuid
from typing import Any, Final

from ..kernel_body import Json

__all__ = ["CellOutput", "CellProgress", "box_html"]

CODE: Final = re.compile(r"`([^`]+)`")
KINDS: Final = {"info": "var(--jp-info-color1,#1976d2)", "warning": "var(--jp-warn-color1,#f57c00)"}


class CellOutput:
    """Publishes to the notebook. Outside of a kernel (plain IPython) it prints."""

    def __init__(self, ip: Any) -> None:
        self._kernel = getattr(ip, "kernel", None)
        self._last_cell: Json = {}

    def parent(self) -> Json:
        """The message that this thread works on: output with this parent appears under its cell."""
        if self._kernel is not None:
            with contextlib.suppress(Exception):  # without a parent only the place is lost
                return dict(self._kernel.get_parent("shell"))
        return {}

    def remember_cell(self) -> None:
        """Called at the beginning of a cell: messages of other threads appear under it."""
        self._last_cell = self.parent()

    def message_type(self) -> str:
        """The type of the message that this thread works on."""
        return str(self.parent().get("header", {}).get("msg_type", ""))

    def message_content(self) -> Json:
        """The content of that message."""
        return dict(self.parent().get("content", {}))

    def show(
        self,
        message: str,
        *,
        kind: str = "info",
        display_id: str | None = None,
        update: bool = False,
        parent: Json | None = None,
    ) -> None:
        """Show a message under the cell of `parent`; None: under the cell that began last. With
        `update` it replaces the message that has this `display_id`.
        """
        if self._kernel is None:
            if message:
                print(message)
            return
        content = {
            "data": {
                "text/plain": message,
                "text/html": box_html(message, kind) if message else "",
            },
            "metadata": {},
            "transient": {"display_id": display_id} if display_id else {},
        }
        # IPython's display() finds the parent of its own thread only. The socket is safe to use
        # from any thread.
        self._kernel.session.send(
            self._kernel.iopub_socket,
            "update_display_data" if update else "display_data",
            content,
            parent=self._last_cell if parent is None else parent,
            ident=b"display_data",
        )


class CellProgress:
    """The line under a waiting cell: updated in place, and removed or replaced when the wait ends.

    It belongs to the cell of the thread that creates it, whatever cells begin meanwhile.
    """

    def __init__(self, output: CellOutput, *, can_interrupt: bool) -> None:
        self._output = output
        self._parent = output.parent()
        self._hint = "; interrupt the kernel to stop waiting" if can_interrupt else ""
        self._id: str | None = None

    def show(self, message: str, waited_s: float) -> None:
        """Show or update the line."""
        update = self._id is not None
        self._id = self._id or f"gpushare-{uuid.uuid4().hex}"
        self._show(f"{message} ({waited_s:.0f} s{self._hint})", update=update)

    def done(self, message: str) -> None:
        """Replace the line, if there is one; "": remove it."""
        if self._id is not None:
            self._show(message, update=True)
            self._id = None

    def _show(self, text: str, *, update: bool) -> None:
        self._output.show(text, display_id=self._id, update=update, parent=self._parent)


def box_html(message: str, kind: str) -> str:
    """A message with a coloured edge; text in backquotes is code."""
    text = CODE.sub(r"<code>\1</code>", html.escape(message))
    style = f"border-left:3px solid {KINDS[kind]};padding:2px 8px;white-space:pre-wrap"
    return f'<div style="{style}">{text}</div>'
