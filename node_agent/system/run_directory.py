"""The folder that every user of the machine can pass through and only root can change: for the
socket, the tokens, the simulated GPUs.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from jupyter_gpushare.core.model.errors import InvalidInput

__all__ = ["prepared"]

PASS: Final = 0o001
OTHERS_WRITE: Final = 0o022


def prepared(folder: Path) -> None:
    """Make it if there is none. Raises InvalidInput: somebody else could change what is in it, or
    could not reach it.
    """
    folder.mkdir(mode=0o711, parents=True, exist_ok=True)
    if not os.listdir(folder):
        folder.chmod(folder.stat().st_mode | 0o711)  # whatever the umask was
    found = folder.stat()
    if found.st_uid != os.geteuid() or found.st_mode & OTHERS_WRITE:
        raise InvalidInput(
            f"with --users all the socket's folder must be root's, and writable by nobody else: {folder}",
            field="--socket",
        )
    for above in (folder, *folder.resolve().parents):
        if not above.stat().st_mode & PASS:
            raise InvalidInput(
                f"with --users all everybody must reach the socket, and {above} lets nobody through",
                field="--socket",
            )
