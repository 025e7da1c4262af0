"""The environment of a kernel that starts while the node agent is unreachable.

An agent that does not know a kernel's token reads the one in its `tokens` folder
(`node_agent.reconcile.lifecycle`), so this module writes it there.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping
from pathlib import Path

__all__ = ["environment"]


def environment(kernel_id: str, agent_socket: str, devices: Mapping[str, str]) -> dict[str, str]:
    """`devices`: device variables of the agent's last answer. {} if no agent ever ran here."""
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
    """Writes a token; an existing one stays, because the agent knows it."""
    folder.mkdir(mode=0o700, exist_ok=True)
    path = folder / kernel_id
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return path
    with os.fdopen(descriptor, "w") as file:
        file.write(secrets.token_urlsafe(32))
    return path
