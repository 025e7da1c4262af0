"""Files with the tokens by which kernels authenticate to the agent, where this server writes them:
in its own runtime folder, which in a container no other user reaches.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

__all__ = ["KernelTokenFiles", "hash_of"]

LAUNCH_S: Final = 600.0
"""A younger file may be that of a kernel whose process another server is about to start."""


def hash_of(token: str) -> str:
    """As the agent compares it."""
    return hashlib.sha256(token.encode()).hexdigest()


class KernelTokenFiles:
    """One file per kernel. All methods raise OSError when the folder is not usable."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def create(self, kernel_id: str) -> tuple[Path, str]:
        """A new token in its file, for a kernel that starts without an agent; returns its hash."""
        token = secrets.token_urlsafe(32)
        return self.write(kernel_id, token), hash_of(token)

    def write(self, kernel_id: str, token: str) -> Path:
        """The token of the agent, for the launch that begins."""
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        path = self._folder / kernel_id
        path.unlink(missing_ok=True)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
        with os.fdopen(os.open(path, flags, 0o600), "w") as file:
            file.write(token)
        return path

    def remove(self, kernel_id: str) -> None:
        """The kernel has ended."""
        (self._folder / kernel_id).unlink(missing_ok=True)

    def remove_stale(self) -> None:
        """Removes what killed servers of this machine or pod left: the files that no process has in
        its environment.
        """
        with contextlib.suppress(FileNotFoundError):
            old = time.time() - LAUNCH_S
            unused = {path for path in self._folder.iterdir() if path.stat().st_mtime < old}
            for environment in _environments() if unused else ():
                unused = {path for path in unused if os.fsencode(path) not in environment}
            for path in unused:
                path.unlink(missing_ok=True)


def _environments() -> Iterator[bytes]:
    """Of the processes that this user may inspect."""
    for file in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):
            yield file.read_bytes()
