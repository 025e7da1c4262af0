"""How long cells wait for a node agent that is not connected."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Final

__all__ = ["AGENT_WAIT_S", "agent_wait_s"]

AGENT_WAIT_S: Final = 10.0
"""How long cells wait for an agent that is not connected: from the loss of the connection, or from
the request if no agent has ever answered. Enough for a restart of the agent on a slow machine.
`GPUSHARE_AGENT_WAIT` in the kernel's environment sets another number of seconds.
"""
MAX_AGENT_WAIT_S: Final = 3600.0


def agent_wait_s(environ: Mapping[str, str]) -> float:
    """Seconds to wait for an agent that is not connected; the default if the value is no number."""
    with contextlib.suppress(ValueError):
        seconds = float(environ.get("GPUSHARE_AGENT_WAIT", AGENT_WAIT_S))
        return min(max(0.0, seconds), MAX_AGENT_WAIT_S)
    return AGENT_WAIT_S
