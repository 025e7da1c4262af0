"""A directory that all users can traverse and only root can change: for the socket, the tokens, and
the simulated GPUs.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from jupyter_gpushare.core.model.errors import InvalidInput

__all__ = ["prepare_public_directory"]

TRAVERSE: Final = 0o001
OTHERS_WRITE: Final = 0o022


def prepare_public_directory(folder: Path) -> None:
    """Create it if necessary. Raises InvalidInput when other users can change its content, or
    cannot reach it.
    """
    folder.mkdir(mode=0o711, parents=True, exist_ok=True)
    if not os.listdir(folder):
        folder.chmod(folder.stat().st_mode | 0o711)  # independent of the umask
    found = folder.stat()
    if found.st_uid != os.geteuid() or found.st_mode & OTHERS_WRITE:
        raise InvalidInput(
            f"only root may own and write this directory, which other users open: {folder}",
            field="--socket",
        )
    for above in (folder, *folder.resolve().parents):
        if not above.stat().st_mode & TRAVERSE:
            raise InvalidInput(
                f"every user must reach the socket, but other users cannot traverse {above}",
                field="--socket",
            )
