"""The parts of jupyter-gpushare in this process, connected to one IPython shell, and the reactions
to messages of the agent.
"""

from __future__ import annotations

import collections
import os
import threading
import traceback
from collections.abc import Callable
from typing import Any, Final

from .cell_gate.agent_wait import agent_wait_s
from .cell_gate.gate import CellGate
from .cell_gate.interrupts import is_main_thread, on_idle_interrupt
from .cell_gate.work import HAS_MEMORY, GatedWork
from .connection import AgentConnection, address_from
from .display.output import CellOutput, CellProgress
from .frameworks.caps import FrameworkCaps
from .kernel_body import Json

__all__ = ["KernelSession", "current", "install", "uninstall"]

QUIET_WIDGET_METHODS: Final = frozenset({"request_state", "request_states"})
"""A page that loads asks widgets for their state. That computes nothing, and must not restore the
memory of a suspended kernel.
"""
MAX_KEPT_MESSAGES: Final = 20
NOTICE_ADVICE: Final = (
    "Until then you can free memory yourself, or release the GPU with `%gpu release`."
)

_current: KernelSession | None = None


class KernelSession:
    """One per process. Without a shell only the functions of `gpu` work."""

    def __init__(self, ip: Any = None) -> None:
        problem = os.environ.get("GPUSHARE_PROBLEM", "")
        self.connection = AgentConnection(
            address_from(os.environ), self._on_message, problem=problem
        )
        self.output = CellOutput(ip)
        self.gate = CellGate(
            self.connection,
            lambda: CellProgress(self.output, can_interrupt=is_main_thread()),
            wants_gpu=os.environ.get("GPUSHARE_WANTS_GPU") == "1",
            agent_wait_s=agent_wait_s(os.environ),
        )
        self.frameworks = FrameworkCaps()
        self.notice_callbacks: list[Callable[[Json], object]] = []
        self.change_callbacks: list[Callable[[], object]] = []
        """Called in the connection's thread when the state of this kernel or of the connection
        changes. They must return at once.
        """
        self.quiet_comms: set[str] = set()
        """Our own widgets. Their messages use no GPU and do not ask the gate."""
        self._kept_messages: collections.deque[str] = collections.deque(maxlen=MAX_KEPT_MESSAGES)
        """Messages that arrived between two cells."""
        self._ip = ip
        self._local = threading.local()
        """`handling`: the messages that this thread handles, innermost last; None: a message that
        did not ask the gate. JupyterLab sends widget messages to subshells, which are threads.
        """

    def start(self) -> None:
        """Register the hooks and connect."""
        if self._ip is not None:
            for event, callback in self._hooks().items():
                self._ip.events.register(event, callback)
            self._ip.ast_transformers.append(self.gate)
            on_idle_interrupt(self.gate.interrupt_waits)
        if self.connection.address is not None and "GPUSHARE_SIMGPU" not in os.environ:
            self.frameworks.start()
        self.connection.start()

    def stop(self) -> None:
        """Remove the hooks and close the connection."""
        if self._ip is not None:
            for event, callback in self._hooks().items():
                self._ip.events.unregister(event, callback)
            self._ip.ast_transformers.remove(self.gate)
        self.frameworks.stop()
        self.connection.stop()

    def is_connected_to(self, ip: Any) -> bool:
        """Whether the hooks are in this shell."""
        return self._ip is ip

    # ---- hooks of IPython

    def _hooks(self) -> dict[str, Callable[..., None]]:
        return {
            "pre_run_cell": self._before_cell,
            "post_run_cell": self.gate.after_cell,
            "pre_execute": self._before_message,
            "post_execute": self._after_message,
        }

    def _before_cell(self, info: Any) -> None:
        self.output.remember_cell()
        self._show_kept_messages()
        self.gate.before_cell(info)
        share = self._share_without_agent_mib()
        self.frameworks.before_cell(share)
        if share is not None and not self.connection.is_lost:
            self.frameworks.before_cell()  # the agent has come back meanwhile: its caps apply
        self._show_kept_messages()

    def _share_without_agent_mib(self) -> int | None:
        """This kernel's share per device while its agent is not connected; None: it is connected,
        or never was.
        """
        if not self.connection.is_lost or not self.connection.ever_welcomed:
            return None
        guaranteed = int(self.connection.kernel["memory_mib"]["guaranteed"])
        return guaranteed // max(1, len(self.frameworks.devices))

    def _before_message(self) -> None:
        """A widget message computes like a cell, and asks the gate like one."""
        work = self.gate.begin_message() if self._must_ask() else None
        self._handling().append(work)

    def _after_message(self) -> None:
        handling = self._handling()
        work = handling.pop() if handling else None
        if work is not None:
            self.gate.work.end(work)

    def _handling(self) -> list[GatedWork | None]:
        handling: list[GatedWork | None] | None = getattr(self._local, "handling", None)
        if handling is None:
            handling = self._local.handling = []
        return handling

    def _must_ask(self) -> bool:
        """Whether this thread handles a message to a widget of the user, and the GPU memory of this
        kernel may be saved.
        """
        if self.output.message_type() != "comm_msg":
            return False
        content = self.output.message_content()
        if content.get("comm_id") in self.quiet_comms:
            return False
        if content.get("data", {}).get("method") in QUIET_WIDGET_METHODS:
            return False
        if self.gate.has_permission():
            return False
        return self.connection.kernel["state"] in HAS_MEMORY

    # ---- messages of the agent (in the connection's thread)

    def _on_message(self, message: Json) -> None:
        kind = message.get("type")
        if kind == "kernel_welcome":
            self.gate.work.resend()
        elif kind == "kernel":
            running = self.gate.is_cell_running()
            self.frameworks.set_devices(message.get("devices", []), running=running)
            self.gate.work.report_unannounced()
        elif kind == "notice":
            self._on_notice(message)
        elif kind in ("notice_over", "told"):
            self._show_or_keep(message.get("message", ""))
        elif kind == "end_cell":
            self.gate.end_cell(message["message"])
        elif kind == "drop_caches":
            self._drop_caches()
        if kind in ("kernel_welcome", "kernel", "away"):
            for callback in list(self.change_callbacks):
                callback()

    def _drop_caches(self) -> None:
        suspended = self.connection.kernel["state"] == "suspended"
        self.frameworks.drop_caches(
            lambda: self.connection.send({"type": "caches_dropped"}), suspended=suspended
        )

    def _on_notice(self, message: Json) -> None:
        self.output.show(f"⚠ {message['message']}\n{NOTICE_ADVICE}", kind="warning")
        for callback in list(self.notice_callbacks):
            threading.Thread(
                target=_call, args=(callback, dict(message)), name="gpushare-notice", daemon=True
            ).start()

    def _show_or_keep(self, message: str) -> None:
        if message and self.gate.is_cell_running():
            self.output.show(message)
        elif message:
            self._kept_messages.append(message)

    def _show_kept_messages(self) -> None:
        while self._kept_messages:
            self.output.show(self._kept_messages.popleft())


def _call(callback: Callable[[Json], object], message: Json) -> None:
    try:
        callback(message)
    except Exception:
        traceback.print_exc()


def current() -> KernelSession:
    """The session of this process; created and connected on first use, also without IPython."""
    global _current
    if _current is None:
        _current = KernelSession()
        _current.start()
    return _current


def install(ip: Any) -> bool:
    """Connect the session of this process to this shell; False: it is connected already."""
    global _current
    if _current is not None and _current.is_connected_to(ip):
        return False
    if _current is not None:
        _current.stop()
    _current = KernelSession(ip)
    _current.start()
    return True


def uninstall(ip: Any) -> None:
    """Remove the hooks from this shell, if they are there."""
    global _current
    if _current is not None and _current.is_connected_to(ip):
        _current.stop()
        _current = None
