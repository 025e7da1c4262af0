"""The environment of a kernel that starts while its agent is away: the agent finds it, and it the
agent, when that comes back.

An agent that does not know a kernel's token takes the one in its `tokens` folder
(`node_agent.reconcile.lifecycle`); so it is put there.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping
from pathlib import Path

__all__ = ["environment"]


def environment(kernel_id: str, agent_socket: str, devices: Mapping[str, str]) -> dict[str, str]:
    """`devices` is what an earlier answer of the agent said beside the kernel's own names. {} where
    no agent ever was.
    """
    state = Path(agent_socket).parent
    if not state.is_dir():
        return {}
    try:
        token_file = _token_file(state / "tokens", kernel_id)
    except OSError:
        return {}
    return {
        **devices,
        "GPUSHARE_KERNEL_ID": kernel_id,
        "GPUSHARE_AGENT": agent_socket,
        "GPUSHARE_TOKEN_FILE": str(token_file),
        "GPUSHARE_LAUNCH": f"{kernel_id}.{secrets.token_hex(6)}",
    }


def _token_file(folder: Path, kernel_id: str) -> Path:
    """A token that is there already is the one that the agent knows."""
    folder.mkdir(mode=0o700, exist_ok=True)
    path = folder / kernel_id
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return path
    with os.fdopen(descriptor, "w") as file:
        file.write(secrets.token_urlsafe(32))
    return path
