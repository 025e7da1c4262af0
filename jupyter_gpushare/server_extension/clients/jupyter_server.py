"""The Jupyter server: its kernels, their notebooks, kernel restart and shutdown, the event bus."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping
from typing import Any, Final

from jupyter_core.utils import ensure_async

from jupyter_gpushare.messages import Event

__all__ = ["EVENT_SCHEMA_ID", "JupyterServer", "gateway_text", "register_events"]

EVENT_SCHEMA_ID: Final = "https://events.jupyter-gpushare.dev/kernel/v1"
EVENT_SCHEMA: Final = {
    "$id": EVENT_SCHEMA_ID,
    "version": "1",
    "title": "GPU share of a kernel",
    "description": "A change of a kernel's GPU share: what happened, why, what was kept or lost.",
    "personal-data": True,
    "type": "object",
    "required": ["kernel_id", "time", "kind", "message"],
    "properties": {
        "kernel_id": {"type": "string", "title": "Kernel id"},
        "time": {"type": "string", "title": "ISO 8601 with a zone"},
        "kind": {
            "type": "string",
            "title": "granted, attached, burst, notice, suspended, resumed, moved, killed, …",
        },
        "message": {"type": "string", "title": "One sentence"},
    },
}


def gateway_text(serverapp: Any) -> str | None:
    """Where to look for the kernels of a server that a gateway runs them for; None: it has none."""
    gateway = serverapp.gateway_config
    if not gateway.gateway_enabled:
        return None
    return (
        f"Kernels of this server run on the gateway {gateway.url}: look there for their GPUs. They"
        " have shares if jupyter-gpushare is installed on the gateway's server. On the machine of a"
        " Kernel Gateway, `jupyter gpushare status` shows them"
    )


def register_events(serverapp: Any) -> None:
    """Register the event schema with the server's event bus, once per server."""
    if EVENT_SCHEMA_ID not in serverapp.event_logger.schemas:
        serverapp.event_logger.register_event_schema(EVENT_SCHEMA)


class JupyterServer:
    """Wraps a `ServerApp`."""

    def __init__(self, serverapp: Any) -> None:
        self._app = serverapp

    def kernel_ids(self) -> list[str]:
        """The kernels that Jupyter has now."""
        return list(self._app.kernel_manager.list_kernel_ids())

    def starting_ids(self) -> set[str]:
        """Kernels whose start has begun: Jupyter lists them only once they run."""
        return {kernel_id for kernel_id, task in self._pending().items() if not task.done()}

    def forget_failed_starts(self) -> None:
        """Remove kernels whose start failed from Jupyter's list of pending kernels.

        `shutdown_all` raises 404 for such a kernel, and then neither the server nor the other
        kernels end.
        """
        pending = self._pending()
        for kernel_id, task in list(pending.items()):
            if task.done() and kernel_id not in self._app.kernel_manager:
                del pending[kernel_id]

    def _pending(self) -> dict[str, asyncio.Task[None]]:
        """Kernels that start or end, and those whose start failed."""
        pending: dict[str, asyncio.Task[None]]
        pending = getattr(self._app.kernel_manager, "_pending_kernels", {})
        return pending

    async def kernel_names(self) -> Mapping[str, str]:
        """Kernel id -> the notebook's path; kernels without a session are missing."""
        names: dict[str, str] = {}
        # list_sessions raises as a whole when the kernel of one session has just died.
        with contextlib.suppress(Exception):
            for session in await ensure_async(self._app.session_manager.list_sessions()):
                names[session["kernel"]["id"]] = session.get("path") or ""
        return names

    def is_busy(self, kernel_id: str) -> bool:
        """Whether a cell runs, as far as Jupyter knows."""
        with contextlib.suppress(Exception):  # the kernel may have ended
            return bool(self._app.kernel_manager.get_kernel(kernel_id).execution_state == "busy")
        return False

    async def restart(self, kernel_id: str) -> None:
        """Jupyter's own restart: id, session and WebSockets stay."""
        await ensure_async(self._app.kernel_manager.restart_kernel(kernel_id, now=True))

    async def end(self, kernel_id: str) -> None:
        """Jupyter's own shutdown; does nothing for a kernel that has ended."""
        if kernel_id in self._app.kernel_manager:
            await ensure_async(self._app.kernel_manager.shutdown_kernel(kernel_id))

    def emit(self, kernel_id: str, event: Event) -> None:
        """Put one event on the server's event bus."""
        data = {
            "kernel_id": kernel_id,
            "time": event.time,
            "kind": event.kind,
            "message": event.message,
        }
        self._app.event_logger.emit(schema_id=EVENT_SCHEMA_ID, data=data)
