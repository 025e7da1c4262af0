"""The files with which kernels authenticate: one token per kernel, readable by its user alone.

For one user the folder is closed. For all users it can be traversed but not listed, and only root
can create files in it: so the owner of a file is the kernel's user, also when the journal is lost.
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

MAX_BYTES: Final = 4096
"""Root reads files that their owners may write."""


def token_matches(kernel: KernelRecord, token: str) -> bool:
    """Compares in constant time; a kernel without a token matches none."""
    return bool(kernel.registration.token) and hmac.compare_digest(
        kernel.registration.token, hashlib.sha256(token.encode()).hexdigest()
    )


class KernelTokens:
    """Token files of one agent. `shared`: for kernels of several users."""

    def __init__(self, folder: Path, *, shared: bool) -> None:
        self._folder, self._shared = folder, shared

    def make(self, kernel: KernelRecord) -> Path:
        """Create a token in its file; the record keeps its hash."""
        mode = 0o711 if self._shared else 0o700
        self._folder.mkdir(mode=mode, parents=True, exist_ok=True)
        self._folder.chmod(mode)  # independent of the umask and of an earlier agent
        token, path = secrets.token_urlsafe(32), self._folder / kernel.kernel_id
        path.unlink(missing_ok=True)
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            if self._shared and kernel.registration.uid is not None:
                os.fchown(file.fileno(), kernel.registration.uid, -1)
            file.write(token)
        kernel.registration.token = hashlib.sha256(token.encode()).hexdigest()
        return path

    def recall(self, kernel: KernelRecord) -> None:
        """A kernel that runs already keeps its token when the journal is lost."""
        path = self._folder / kernel.kernel_id
        if not kernel.registration.token and path.is_file():
            with path.open("rb") as file:
                kernel.registration.token = hashlib.sha256(file.read(MAX_BYTES)).hexdigest()

    def owner(self, kernel_id: str) -> int | None:
        """The owner of the token file, if that is the kernel's user."""
        try:
            return (self._folder / kernel_id).lstat().st_uid if self._shared else None
        except OSError:
            return None

    def forget(self, kernel_id: str) -> None:
        """Remove the token of an ended kernel."""
        (self._folder / kernel_id).unlink(missing_ok=True)
