"""The tokens with which kernels authenticate: one per kernel, in a file that its user alone can
read.

For one user the folder of the files is closed. For all users it can be traversed but not listed,
and only root can create files in it: so the owner of a file is the kernel's user, also when the
journal is lost. Pods share no folder with the agent, where root of one pod could read the token of
another: the server of a kernel receives the token over its connection and writes the file itself.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
from pathlib import Path
from typing import Final, NamedTuple, Protocol

from ..state.config import AgentConfig
from ..state.kernel_record import KernelRecord
from ..system.process_owner import ProcessOwner, UnixUser

__all__ = ["IssuedToken", "TokenStore", "token_matches", "token_store"]

MAX_BYTES: Final = 4096
"""Root reads files that their owners may write."""


def token_matches(kernel: KernelRecord, token: str) -> bool:
    """Compares in constant time; a kernel without a token matches none."""
    return bool(kernel.registration.token) and hmac.compare_digest(
        kernel.registration.token, hashlib.sha256(token.encode()).hexdigest()
    )


def _new_token(kernel: KernelRecord) -> str:
    """A token; the record keeps its hash."""
    token = secrets.token_urlsafe(32)
    kernel.registration.token = hashlib.sha256(token.encode()).hexdigest()
    return token


class IssuedToken(NamedTuple):
    """Where a new token is: in a file, or here, for the kernel's server."""

    path: Path | None
    token: str


class TokenStore(Protocol):
    """The tokens of one agent's kernels."""

    def make(self, kernel: KernelRecord) -> IssuedToken:
        """Create a token for the launch that begins."""

    def recall(self, kernel: KernelRecord) -> None:
        """A kernel that runs already keeps its token when the journal is lost."""

    def owner(self, kernel_id: str) -> ProcessOwner | None:
        """Whose kernel it is, as far as its token shows."""

    def forget(self, kernel_id: str) -> None:
        """Remove the token of an ended kernel."""


def token_store(config: AgentConfig) -> TokenStore:
    """That of an agent with this configuration."""
    if not config.tenancy.has_token_files:
        return _HandedTokens()
    return _TokenFiles(config.public_dir() / "tokens", shared=config.tenancy.is_shared)


class _HandedTokens:
    """Tokens that the servers of the kernels write to files."""

    def make(self, kernel: KernelRecord) -> IssuedToken:
        """Hand it to the server."""
        return IssuedToken(None, _new_token(kernel))

    def recall(self, kernel: KernelRecord) -> None:
        """Its server knows the hash."""

    def owner(self, kernel_id: str) -> ProcessOwner | None:  # noqa: ARG002 - protocol
        """Not known without the journal."""
        return None

    def forget(self, kernel_id: str) -> None:
        """Its server removes the file."""


class _TokenFiles:
    """Files in one folder. `shared`: for kernels of several users."""

    def __init__(self, folder: Path, *, shared: bool) -> None:
        self._folder, self._shared = folder, shared

    def make(self, kernel: KernelRecord) -> IssuedToken:
        """Write it for the owner of the kernel."""
        mode = 0o711 if self._shared else 0o700
        self._folder.mkdir(mode=mode, parents=True, exist_ok=True)
        self._folder.chmod(mode)  # independent of the umask and of an earlier agent
        token, path = _new_token(kernel), self._folder / kernel.kernel_id
        path.unlink(missing_ok=True)
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            if self._shared and isinstance(kernel.registration.owner, UnixUser):
                os.fchown(file.fileno(), kernel.registration.owner.uid, -1)
            file.write(token)
        return IssuedToken(path, "")

    def recall(self, kernel: KernelRecord) -> None:
        """By its file."""
        path = self._folder / kernel.kernel_id
        if not kernel.registration.token and path.is_file():
            with path.open("rb") as file:
                kernel.registration.token = hashlib.sha256(file.read(MAX_BYTES)).hexdigest()

    def owner(self, kernel_id: str) -> ProcessOwner | None:
        """The owner of the file, if that is the kernel's user."""
        try:
            return UnixUser((self._folder / kernel_id).lstat().st_uid) if self._shared else None
        except OSError:
            return None

    def forget(self, kernel_id: str) -> None:
        """Remove its file."""
        (self._folder / kernel_id).unlink(missing_ok=True)
