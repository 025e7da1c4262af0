"""The one family of errors: each has a stable code, an HTTP status hint, and a message with the
values in it.
"""

from __future__ import annotations

__all__ = [
    "Conflict",
    "GpuShareError",
    "InvalidInput",
    "NotAllowed",
    "NotFound",
    "OutOfTurn",
    "Unavailable",
]


class GpuShareError(Exception):
    """Raised for the caller. `field` names the part of the input that is at fault, when one is."""

    code: str = "error"
    status_hint: int = 500

    def __init__(self, message: str, *, field: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.field = field


class InvalidInput(GpuShareError):
    """Raised when what was asked cannot be read or makes no sense; nothing was changed."""

    code, status_hint = "invalid-input", 400


class NotFound(GpuShareError):
    """Raised when a thing that was named does not exist, or is not the caller's to see."""

    code, status_hint = "not-found", 404


class NotAllowed(GpuShareError):
    """Raised when the caller is known and may not do this."""

    code, status_hint = "not-allowed", 403


class Conflict(GpuShareError):
    """Raised when an id is taken by something else, or the state does not permit the action."""

    code, status_hint = "conflict", 409


class OutOfTurn(Conflict):
    """Raised when a fact arrives that the lease's state has no place for."""

    code = "lease-out-of-turn"


class Unavailable(GpuShareError):
    """Raised when a part that is needed cannot be reached now; the same call may succeed later."""

    code, status_hint = "unavailable", 503
