"""The files with which kernels show who they are: one token per kernel, readable by its owner
alone.

For one user the folder is closed. For all users it can be passed through and not listed, and nobody
but root can put a file into it: so the owner of a file there is the kernel's owner, also when the
journal is lost.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
from pathlib import Path
from typing import Final

from ..state.kernel_record import KernelRecord

__all__ = ["KernelTokens", "token_matches"]

LONGEST: Final = 4096
"""Bytes: a file may be its owner's to write, and is read by root."""


def token_matches(kernel: KernelRecord, token: str) -> bool:
    """Compared in constant time; a book without a token matches nothing."""
    return bool(kernel.registration.token) and hmac.compare_digest(
        kernel.registration.token, hashlib.sha256(token.encode()).hexdigest()
    )


class KernelTokens:
    """Of one agent. `shared`: its kernels are of several users."""

    def __init__(self, folder: Path, *, shared: bool) -> None:
        self._folder, self._shared = folder, shared

    def make(self, kernel: KernelRecord) -> Path:
        """A fresh token for a kernel, in its file; the book keeps the hash."""
        mode = 0o711 if self._shared else 0o700
        self._folder.mkdir(mode=mode, parents=True, exist_ok=True)
        self._folder.chmod(mode)  # whatever the umask was, or an agent for fewer people left
        token, path = secrets.token_urlsafe(32), self._folder / kernel.kernel_id
        path.unlink(missing_ok=True)
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            if self._shared and kernel.registration.uid is not None:
                os.fchown(file.fileno(), kernel.registration.uid, -1)
            file.write(token)
        kernel.registration.token = hashlib.sha256(token.encode()).hexdigest()
        return path

    def recall(self, kernel: KernelRecord) -> None:
        """A kernel that runs already keeps its token, also when the journal is lost."""
        path = self._folder / kernel.kernel_id
        if not kernel.registration.token and path.is_file():
            with path.open("rb") as file:
                kernel.registration.token = hashlib.sha256(file.read(LONGEST)).hexdigest()

    def owner(self, kernel_id: str) -> int | None:
        """Whose token file there is, where that says whose the kernel is."""
        try:
            return (self._folder / kernel_id).lstat().st_uid if self._shared else None
        except OSError:
            return None

    def forget(self, kernel_id: str) -> None:
        """The kernel is over."""
        (self._folder / kernel_id).unlink(missing_ok=True)
