"""The environment of a kernel that starts while the node agent is unreachable.

Its token lies where the agent looks for tokens that it does not know
(`node_agent.socket.kernel_tokens`), if this server may write there; otherwise this server keeps the
token, and registers the kernel with the token's hash when the agent is back.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from .token_files import KernelTokenFiles, hash_of

__all__ = ["UnregisteredKernel", "unregistered_kernel"]


class UnregisteredKernel(NamedTuple):
    """How it starts; `token_hash` and `launch` are for its registration later."""

    env: dict[str, str]
    token_hash: str = ""
    launch: str = ""


def unregistered_kernel(
    kernel_id: str, agent_socket: str, devices: Mapping[str, str], files: KernelTokenFiles
) -> UnregisteredKernel:
    """`devices`: device variables of the agent's last answer. An empty environment if no token can
    be written.
    """
    try:
        token_file, token_hash = _token(Path(agent_socket).parent, kernel_id, files)
    except OSError:
        return UnregisteredKernel({})
    launch = f"{kernel_id}.{secrets.token_hex(6)}"
    env = {
        **devices,
        "GPUSHARE_KERNEL_ID": kernel_id,
        "GPUSHARE_AGENT": agent_socket,
        "GPUSHARE_TOKEN_FILE": str(token_file),
        "GPUSHARE_LAUNCH": launch,
    }
    return UnregisteredKernel(env, token_hash, launch)


def _token(state: Path, kernel_id: str, files: KernelTokenFiles) -> tuple[Path, str]:
    """In the agent's folder an existing token stays, because the agent knows it."""
    path = state / "tokens" / kernel_id
    try:
        path.parent.mkdir(mode=0o700, exist_ok=True)
        if not path.exists():
            KernelTokenFiles(path.parent).create(kernel_id)
        return path, hash_of(path.read_text())
    except OSError:
        return files.create(kernel_id)
