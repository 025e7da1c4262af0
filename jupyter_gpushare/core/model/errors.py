"""The family of errors: each has a stable code, an HTTP status hint and a message with the values
in it.
"""

from __future__ import annotations

__all__ = ["Conflict", "GpuShareError", "InvalidInput", "NotAllowed", "NotFound", "Unavailable"]


class GpuShareError(Exception):
    """Base class. `field` names the part of the input that is wrong, if one is."""

    code: str = "error"
    status_hint: int = 500

    def __init__(self, message: str, *, field: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.field = field


class InvalidInput(GpuShareError):
    """Raised when a request cannot be parsed or is invalid; nothing was changed."""

    code, status_hint = "invalid-input", 400


class NotFound(GpuShareError):
    """Raised when a named object does not exist, or the caller may not see it."""

    code, status_hint = "not-found", 404


class NotAllowed(GpuShareError):
    """Raised when an authenticated caller lacks the permission."""

    code, status_hint = "not-allowed", 403


class Conflict(GpuShareError):
    """Raised when an id is in use, or the state does not permit the action."""

    code, status_hint = "conflict", 409


class Unavailable(GpuShareError):
    """Raised when a required component cannot be reached; the same call may succeed later."""

    code, status_hint = "unavailable", 503
