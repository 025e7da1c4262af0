"""`gpu.panel()`: this notebook's share, live, with buttons. Plain ipywidgets, which every front end
with widgets can show.

It draws when the agent sends a change, not periodically, and sends nothing while no page shows it.
A button's request runs in a thread of its own, so that no cell and no other widget waits for it.
"""

from __future__ import annotations

import contextlib
import html
import threading
import time
from collections.abc import Callable
from typing import Any, Final

import ipywidgets as widgets
from IPython.display import display

from .display import text as text_view
from .display.html import card_html
from .kernel_body import Json
from .rpc import GpuError, act, no_agent_text, request_body, send_request
from .session import KernelSession

__all__ = ["GpuPanel"]

REDRAW_S: Final = 0.25
"""At least between two redraws: memory may grow in many small steps."""
SHARES: Final = ("0.25", "0.5", "1")
ALERT_STYLE: Final = "border-left:3px solid var(--jp-error-color1,#d32f2f);padding:2px 8px"
ACTIONS: Final = {
    "request": ("Request", "Request this share, in place of the current one"),
    "release": ("Release", "Release the GPU; the kernel keeps running without one"),
    "suspend": ("Suspend", "Save the GPU memory to host memory; the kernel keeps running"),
    "resume": ("Resume", "Restore the saved GPU memory"),
}


class GpuPanel:
    """Shown at the end of a cell, or as `panel.widget` in any layout. `close()` removes it."""

    def __init__(self, session: KernelSession) -> None:
        self._session = session
        self._card = widgets.HTML()
        self._share = widgets.Combobox(
            value="0.5",
            options=SHARES,
            ensure_option=False,
            description="Share",
            layout={"width": "170px"},
        )
        self._share.tooltip = "GPUs such as 0.5, or GPU memory such as 20GiB"
        self._buttons = {
            name: widgets.Button(description=label, tooltip=tooltip, layout={"width": "auto"})
            for name, (label, tooltip) in ACTIONS.items()
        }
        row = widgets.HBox([self._share, *self._buttons.values()], layout={"flex_flow": "row wrap"})
        self.widget = widgets.VBox([self._card, row])
        self._error = ""
        """Why the last button's request was refused."""
        self._request_open = False
        self._was_viewed = False
        self._drawn_at = 0.0
        self._next_draw: threading.Timer | None = None
        self._lock = threading.RLock()
        self._connect()
        self.draw()

    def _connect(self) -> None:
        for name, button in self._buttons.items():
            button.on_click(lambda _, name=name: self.start_request(name))
        self.widget._view_count = 0
        self.widget.observe(self._view_count_changed, "_view_count")
        for one in (self.widget, self._card, self._share, *self._buttons.values()):
            if one.comm is not None:
                self._session.quiet_comms.add(one.comm.comm_id)
        self._session.change_callbacks.append(self.redraw_soon)

    def close(self) -> None:
        """Remove it from every page."""
        with contextlib.suppress(ValueError):
            self._session.change_callbacks.remove(self.redraw_soon)
        if self._next_draw is not None:
            self._next_draw.cancel()
        self.widget.close()

    def __repr__(self) -> str:
        return text_view.kernel_text(self._session.connection.kernel)

    def _ipython_display_(self) -> None:
        # ipywidgets 7 has no `_repr_mimebundle_`
        view = {"version_major": 2, "version_minor": 0, "model_id": self.widget.model_id}
        shown = {
            "application/vnd.jupyter.widget-view+json": view,
            "text/plain": repr(self),  # for terminals and saved notebooks, without widgets
        }
        display(shown, raw=True)

    # ---- when it draws

    @property
    def is_visible(self) -> bool:
        """False after every page that showed it has gone. A front end that does not count its views
        is taken to show it.
        """
        return not self._was_viewed or bool(self.widget._view_count)

    def _view_count_changed(self, change: Any) -> None:
        self._was_viewed = self._was_viewed or bool(change["new"])
        if change["new"]:
            self.draw()

    def redraw_soon(self) -> None:
        """Draw now, or `REDRAW_S` after the last time. The last change is always drawn."""
        with self._lock:
            if not self.is_visible or self._next_draw is not None:
                return
            wait = self._drawn_at + REDRAW_S - time.monotonic()
            if wait <= 0:
                self.draw()
                return
            self._next_draw = threading.Timer(wait, self.draw)
            self._next_draw.daemon = True
            self._next_draw.start()

    def draw(self) -> None:
        """Show the current state."""
        with self._lock:
            self._next_draw, self._drawn_at = None, time.monotonic()
            connection = self._session.connection
            kernel, has_agent = connection.kernel, connection.address is not None
            lost = connection.loss_text
            if has_agent:
                self._card.value = body_html(kernel, agent_problem=lost, error=self._error)
            else:
                text = no_agent_text(connection)
                self._card.value = f"<p>{html.escape(text[0].upper() + text[1:])}.</p>"
            enabled = set()
            if has_agent and not lost and not self._request_open:
                enabled = possible_actions(kernel)
            for name, button in self._buttons.items():
                button.disabled = name not in enabled
            is_first = kernel["state"] == "detached"
            self._buttons["request"].description = "Request" if is_first else "Change"

    # ---- its buttons

    def start_request(self, name: str) -> None:
        """Carry out the action of a button; returns at once. A refusal is shown in the panel."""
        send: Callable[[], object] = self._request if name == "request" else lambda: act(name)
        self._request_open, self._error = True, ""
        self.draw()
        threading.Thread(
            target=self._send, args=(send,), name="gpushare-panel", daemon=True
        ).start()

    def _send(self, send: Callable[[], object]) -> None:
        try:
            send()
        except GpuError as error:
            self._error = str(error)
        finally:
            self._request_open = False
            self.draw()

    def _request(self) -> None:
        share = str(self._share.value).strip()
        is_memory = share[-1:].isalpha()
        gpu, memory = (None, share) if is_memory else (share, None)
        send_request(request_body(gpu, memory, None, None, None, None))


def possible_actions(kernel: Json) -> set[str]:
    """The buttons that make sense in this state. Agent and scheduler decide."""
    state = kernel["state"]
    actions = {"request"}
    if state != "detached":
        actions.add("release")
    if state == "attached":
        actions.add("suspend")
    if state == "suspended":
        actions.add("resume")
    return actions


def body_html(kernel: Json, *, agent_problem: str, error: str = "") -> str:
    """The card, and the refusal of the last request."""
    if kernel["state"] in ("detached", "pending", "granted"):
        kernel = {**kernel, "events": []}  # the agent's last event is older than the request
    card = card_html(kernel, agent_problem=agent_problem)
    if not error:
        return card
    return f'{card}<div role="alert" style="{ALERT_STYLE}">{html.escape(error)}</div>'
