"""Whether the scheduler and the node agent that this server needs have started."""

from __future__ import annotations

import asyncio

__all__ = ["StartupState"]


class StartupState:
    """Set by the extension, read by everything that waits for the agent or reports its status."""

    def __init__(self) -> None:
        self.finished = asyncio.Event()
        """Set when the embedded services have started or have failed to, and in remote mode."""
        self.problem: str | None = None
        """Why no scheduler or agent is available; None: none is known."""
        self.gateway_text: str | None = None
        """Where to look for the kernels, if a gateway runs them; None: this server runs them."""
