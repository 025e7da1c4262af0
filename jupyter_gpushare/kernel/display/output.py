"""Where a person sees what happens to the GPU of this notebook: under the cell that runs, from
whichever thread knows it.
"""

from __future__ import annotations

import contextlib
import html
import re
import uuid
from typing import Any, Final

from ..connection import Json

__all__ = ["CellProgress", "CellOutput"]

CODE: Final = re.compile(r"`([^`]+)`")
KINDS: Final = {"info": "var(--jp-info-color1,#1976d2)", "warning": "var(--jp-warn-color1,#f57c00)"}


class CellOutput:
    """Publishes to the notebook. Outside a kernel (plain IPython) it prints."""

    def __init__(self, ip: Any) -> None:
        self._ip = ip
        self._kernel = getattr(ip, "kernel", None)
        self._parent: Json = {}

    def remember_cell(self) -> None:
        """Call it when a cell begins: messages of other threads go under this one."""
        if self._kernel is not None:
            with contextlib.suppress(
                Exception
            ):  # a parent that cannot be told only costs the place, not the message
                self._parent = self._kernel.get_parent("shell")

    def message_type(self) -> str:
        """What kind of message the main thread works on now."""
        parent = self._kernel.get_parent("shell") if self._kernel is not None else {}
        return str(parent.get("header", {}).get("msg_type", ""))

    def message_content(self) -> Json:
        """The content of that message."""
        parent = self._kernel.get_parent("shell") if self._kernel is not None else {}
        return dict(parent.get("content", {}))

    def say(
        self,
        message: str,
        *,
        kind: str = "info",
        display_id: str | None = None,
        update: bool = False,
    ) -> None:
        """Show one message under the cell that runs or ran last; with `update` it replaces what
        `display_id` showed.
        """
        bundle = (
            {"text/plain": message, "text/html": _box(message, kind)}
            if message
            else {"text/plain": "", "text/html": ""}
        )
        if self._kernel is None:
            if message:
                print(message)
            return
        content = {
            "data": bundle,
            "metadata": {},
            "transient": {"display_id": display_id} if display_id else {},
        }
        kind_of_message = "update_display_data" if update else "display_data"
        # Not IPython's display(): that one knows the parent of its own thread only. The socket is
        # safe to use from any thread.
        self._kernel.session.send(
            self._kernel.iopub_socket,
            kind_of_message,
            content,
            parent=self._parent,
            ident=b"display_data",
        )


class CellProgress:
    """The line under a cell that waits: updated in place, gone or one tidy line when the wait is
    over.
    """

    def __init__(self, screen: CellOutput) -> None:
        self._screen = screen
        self._id: str | None = None

    def show(self, message: str, waited_s: float) -> None:
        text = f"{message} ({waited_s:.0f} s; interrupt the kernel to stop waiting)"
        if self._id is None:
            self._id = f"gpushare-{uuid.uuid4().hex}"
            self._screen.say(text, display_id=self._id)
        else:
            self._screen.say(text, display_id=self._id, update=True)

    def done(self, message: str) -> None:
        if self._id is not None:
            self._screen.say(message, display_id=self._id, update=True)
            self._id = None


def _box(message: str, kind: str) -> str:
    return f'<div style="border-left:3px solid {KINDS[kind]};padding:2px 8px;white-space:pre-wrap">{_words(message)}</div>'


def _words(message: str) -> str:
    """What stands between back quotes is something to type."""
    return CODE.sub(r"<code>\1</code>", html.escape(message))
