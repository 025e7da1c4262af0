"""`gpu.panel()`: this notebook's share, live, with its buttons. Plain ipywidgets: every front end
that shows widgets shows it.

It draws when the agent says something new, never by a clock; it sends nothing while no page shows
it; what a button asks is asked in a thread of its own, so that neither a cell nor another widget
waits for the answer.
"""

from __future__ import annotations

import contextlib
import html
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any, Final

import ipywidgets as widgets
from IPython.display import display

from .connection import Json
from .display import text as text_view
from .display.html import card_html
from .rpc import NOT_OURS, GpuError, act, ask_for, request_body
from .session import KernelSession

__all__ = ["GpuPanel"]

APART_S: Final = 0.25
"""Memory that grows in small steps is told at every one; a person sees four a second."""
SHARES: Final = ("0.25", "0.5", "1")
Ask = Callable[[], object]


class GpuPanel:
    """Shows itself at the end of a cell, and in every layout as `panel.widget`; `close()` ends it."""

    def __init__(self, extension: KernelSession) -> None:
        self._extension = extension
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
            "request": _button("Request", "Ask for this share, in place of the one it has"),
            "release": _button("Release", "Give the GPU back; the kernel lives on without one"),
            "suspend": _button(
                "Suspend", "Save the GPU memory to host memory; the kernel lives on"
            ),
            "resume": _button("Resume", "Bring the saved GPU memory back"),
        }
        row = widgets.HBox([self._share, *self._buttons.values()], layout={"flex_flow": "row wrap"})
        self.widget = widgets.VBox([self._card, row])
        self._said = ""
        """What became of the last button: a refusal, or nothing."""
        self._asking = False
        self._was_seen = False
        self._drawn_at = 0.0
        self._later: threading.Timer | None = None
        self._lock = threading.RLock()
        self._wire_up()
        self.draw()

    def _wire_up(self) -> None:
        for name, button in self._buttons.items():
            button.on_click(lambda _, name=name: self.ask(name))
        self.widget._view_count = 0
        self.widget.observe(self._seen, "_view_count")
        for one in (self.widget, self._card, self._share, *self._buttons.values()):
            if one.comm is not None:
                self._extension.quiet_comms.add(one.comm.comm_id)
        self._extension.on_change.append(self.changed)

    def close(self) -> None:
        """Take it off every page."""
        with contextlib.suppress(ValueError):
            self._extension.on_change.remove(self.changed)
        if self._later is not None:
            self._later.cancel()
        self.widget.close()

    def __repr__(self) -> str:
        return text_view.kernel_text(self._extension.link.kernel)

    def _ipython_display_(self) -> None:
        shown = self.widget._repr_mimebundle_()
        shown["text/plain"] = repr(
            self
        )  # where no widgets are shown (a terminal, a saved notebook) this is what is read
        display(shown, raw=True)

    # ---- when it draws

    @property
    def is_looked_at(self) -> bool:
        """False when pages counted their views and now there is none; a front end that does not
        count is taken to look.
        """
        return not self._was_seen or bool(self.widget._view_count)

    def _seen(self, change: Any) -> None:
        self._was_seen = self._was_seen or bool(change["new"])
        if change["new"]:
            self.draw()

    def changed(self) -> None:
        """The agent said something. At most four drawings a second, and the last one is always
        drawn.
        """
        with self._lock:
            if not self.is_looked_at or self._later is not None:
                return
            wait = self._drawn_at + APART_S - time.monotonic()
            if wait <= 0:
                self.draw()
                return
            self._later = threading.Timer(wait, self.draw)
            self._later.daemon = True
            self._later.start()

    def draw(self) -> None:
        """Show what is true now."""
        with self._lock:
            self._later, self._drawn_at = None, time.monotonic()
            link = self._extension.link
            away = link.address is not None and not link.welcomed.is_set()
            self._card.value = body_html(
                link.kernel, away=away, ours=link.address is not None, said=self._said
            )
            possible = (
                set()
                if self._asking or away or link.address is None
                else possible_actions(link.kernel)
            )
            for name, button in self._buttons.items():
                button.disabled = name not in possible
            self._buttons["request"].description = (
                "Request" if link.kernel["state"] == "detached" else "Change"
            )

    # ---- what its buttons do

    def ask(self, name: str) -> None:
        """Carry out what a button says, and show a refusal; returns at once."""
        asks: dict[str, Ask] = {
            "request": self._request,
            **{name: partial(act, name) for name in ("release", "suspend", "resume")},
        }
        self._asking, self._said = True, ""
        self.draw()
        threading.Thread(
            target=self._ask, args=(asks[name],), name="gpushare-panel", daemon=True
        ).start()

    def _ask(self, ask: Ask) -> None:
        try:
            ask()
        except GpuError as error:
            self._said = str(error)
        finally:
            self._asking = False
            self.draw()

    def _request(self) -> None:
        share = str(self._share.value).strip()
        is_memory = share.lower().endswith("b")
        ask_for(
            request_body(
                None if is_memory else share, share if is_memory else None, None, None, None, None
            )
        )


def possible_actions(kernel: Json) -> set[str]:
    """Which buttons make sense in this state; the agent and the scheduler have the last word."""
    state = kernel["state"]
    more = {"attached": {"suspend"}, "suspended": {"resume"}}.get(state, set())
    return {"request"} | more | ({"release"} if state != "detached" else set())


def body_html(kernel: Json, *, away: bool, ours: bool, said: str = "") -> str:
    """The card, and what became of the last button."""
    if not ours:
        return f"<p>{html.escape(NOT_OURS.capitalize())}.</p>"
    if not said:
        return card_html(kernel, away=away)
    problem = f'<div role="alert" style="border-left:3px solid var(--jp-error-color1,#d32f2f);padding:2px 8px">{html.escape(said)}</div>'
    return card_html(kernel, away=away) + problem


def _button(label: str, about: str) -> widgets.Button:
    return widgets.Button(description=label, tooltip=about, layout={"width": "auto"})
