"""The kernel extension: one link, one gate, one screen, and what happens when the agent says
something unasked.
"""

from __future__ import annotations

import collections
import os
import threading
import traceback
from collections.abc import Callable
from typing import Any, Final

from .cell_gate import CellGate, away_s
from .connection import AgentConnection, Json, address_from
from .display.output import CellOutput, CellProgress
from .frameworks.caps import FrameworkCaps

__all__ = ["KernelSession", "current", "hook_into", "let_go_of"]

QUIET_WIDGET_METHODS: Final = frozenset({"request_state", "request_states"})
"""A page that loads asks widgets for their state; that computes nothing and must not resume a
suspended kernel.
"""

_current: KernelSession | None = None


class KernelSession:
    """What this kernel has of jupyter-gpushare, wired to one IPython shell (or to none: then only
    the functions work).
    """

    def __init__(self, ip: Any = None) -> None:
        self.link = AgentConnection(
            address_from(os.environ), self._heard, problem=os.environ.get("GPUSHARE_PROBLEM", "")
        )
        self.screen = CellOutput(ip)
        wants_gpu = os.environ.get("GPUSHARE_WANTS_GPU") == "1"
        self.gate = CellGate(
            self.link,
            lambda: CellProgress(self.screen),
            wants_gpu=wants_gpu,
            away_s=away_s(os.environ),
        )
        self.frameworks = FrameworkCaps()
        self.on_notice: list[Callable[[Json], object]] = []
        self.on_change: list[Callable[[], object]] = []
        """Called in the link's thread whenever the agent said something of this kernel, or went
        away. They must return at once.
        """
        self.quiet_comms: set[str] = set()
        """Widgets of ours, whose messages compute nothing on a GPU: they pass the gate without
        asking.
        """
        self._untold: collections.deque[str] = collections.deque(maxlen=20)
        self._ip = ip
        self._widget = threading.local()
        """Per thread: JupyterLab sends widgets' messages to subshells, which are threads."""

    def start(self) -> None:
        """Hook into the shell and begin to connect."""
        if self._ip is not None:
            events = self._ip.events
            events.register("pre_run_cell", self._before_cell)
            events.register("post_run_cell", self.gate.after_cell)
            events.register("pre_execute", self._before_anything)
            events.register("post_execute", self._after_anything)
            self._ip.ast_transformers.append(self.gate)
        if self.link.address is not None and "GPUSHARE_SIMGPU" not in os.environ:
            self.frameworks.start()
        self.link.start()

    def stop(self) -> None:
        """Take the hooks out and close the line."""
        if self._ip is not None:
            events = self._ip.events
            events.unregister("pre_run_cell", self._before_cell)
            events.unregister("post_run_cell", self.gate.after_cell)
            events.unregister("pre_execute", self._before_anything)
            events.unregister("post_execute", self._after_anything)
            self._ip.ast_transformers.remove(self.gate)
        self.frameworks.stop()
        self.link.stop()

    # ---- hooks

    def _before_cell(self, info: Any) -> None:
        self.screen.remember_cell()
        self._tell_all()
        self.gate.before_cell(info)
        share = self._unsupervised_mib()
        self.frameworks.before_cell(share)
        if (
            share is not None and self.link.welcomed.is_set()
        ):  # it came back at this very moment, and what it says counts
            self.frameworks.before_cell()
        self._tell_all()

    def _unsupervised_mib(self) -> int | None:
        """This kernel's share per device while its agent is away; None: the agent is here, or was
        never.
        """
        if self.link.welcomed.is_set() or not self.link.ever_welcomed:
            return None
        return int(self.link.kernel["memory_mib"]["guaranteed"]) // max(
            1, len(self.frameworks.devices)
        )

    def _before_anything(self) -> None:
        """A widget's message computes too: it asks like a cell, but cannot be refused."""
        if self.screen.message_type() != "comm_msg":
            return
        content = self.screen.message_content()
        if content.get("comm_id") in self.quiet_comms:
            return
        method = content.get("data", {}).get("method")
        if (
            method in QUIET_WIDGET_METHODS
            or self.gate.running
            or self.link.kernel["state"] not in ("attached", "suspended", "reclaiming")
        ):
            return
        self._widget.verdict = self.gate.ask_apart()

    def _after_anything(self) -> None:
        verdict, self._widget.verdict = getattr(self._widget, "verdict", None), None
        if verdict is not None:
            self.gate.end(verdict)

    # ---- what the agent says unasked (in the link's thread)

    def _heard(self, message: Json) -> None:
        match message.get("type"):
            case "kernel_welcome":
                self.gate.say_again()
            case "kernel":
                self.frameworks.told(message.get("devices", []), running=self.gate.running)
                self.gate.catch_up()
            case "notice":
                self._noticed(message)
            case "notice_over" | "told":
                self._tell(message.get("message", ""))
            case "end_cell":
                self.gate.end_cell(message["message"])
            case "drop_caches":
                suspended = self.link.kernel["state"] == "suspended"
                self.frameworks.drop_caches(
                    lambda: self.link.send({"type": "caches_dropped"}), suspended=suspended
                )
        if message.get("type") in ("kernel_welcome", "kernel", "away"):
            for tell in list(self.on_change):
                tell()

    def _noticed(self, message: Json) -> None:
        advice = (
            "Until then you can free memory yourself, or give the GPU back with `%gpu release`."
        )
        self.screen.say(f"⚠ {message['message']}\n{advice}", kind="warning")
        for callback in list(self.on_notice):
            threading.Thread(
                target=_call, args=(callback, dict(message)), name="gpushare-notice", daemon=True
            ).start()

    def _tell(self, message: str) -> None:
        if not message:
            return
        if self.gate.running:
            self.screen.say(message)
        else:
            self._untold.append(message)

    def _tell_all(self) -> None:
        while self._untold:
            self.screen.say(self._untold.popleft())


def _call(callback: Callable[[Json], object], message: Json) -> None:
    try:
        callback(message)
    except Exception:
        traceback.print_exc()


def current() -> KernelSession:
    """This process's extension; made and connected on first use, also without IPython."""
    global _current
    if _current is None:
        _current = KernelSession()
        _current.start()
    return _current


def hook_into(ip: Any) -> bool:
    """Makes this shell the one that this process's extension works in; False: it is already."""
    global _current
    if _current is not None and _current._ip is ip:
        return False
    if _current is not None:
        _current.stop()
    _current = KernelSession(ip)
    _current.start()
    return True


def let_go_of(ip: Any) -> None:
    """Takes the hooks out of this shell, if they are in it."""
    global _current
    if _current is not None and _current._ip is ip:
        _current.stop()
        _current = None
