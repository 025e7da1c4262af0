"""Bodies to JSON and back, and errors as bodies. A body that cannot be read raises `InvalidInput`
with the field's name.
"""

from __future__ import annotations

from typing import Any, Final, TypeVar

import msgspec

from jupyter_gpushare.core.model.errors import (
    Conflict,
    GpuShareError,
    InvalidInput,
    NotAllowed,
    NotFound,
    Unavailable,
)

from .common import ErrorBody, ErrorDetail

__all__ = [
    "bad_body",
    "convert",
    "decode",
    "encode",
    "error_detail",
    "error_from",
    "error_of",
    "to_json",
]

T = TypeVar("T")

_CLASSES: Final = {
    kind.code: kind for kind in (InvalidInput, NotFound, NotAllowed, Conflict, Unavailable)
}
_CLASSES_BY_STATUS: Final[dict[int, type[GpuShareError]]] = {
    400: InvalidInput,
    401: NotAllowed,
    403: NotAllowed,
    404: NotFound,
    409: Conflict,
    413: InvalidInput,
    429: Unavailable,
}

_encoder = msgspec.json.Encoder()


def encode(body: Any) -> bytes:
    """A body as JSON."""
    return _encoder.encode(body)


def decode(kind: type[T], data: bytes | str) -> T:
    """A body of this type (a class or a union of tagged classes).

    Raises:
        InvalidInput: what is wrong, with the field's name when one is at fault.
    """
    try:
        return msgspec.json.decode(data, type=kind)
    except msgspec.MsgspecError as error:
        raise bad_body(error) from None
    except UnicodeError:
        raise InvalidInput("the body is not valid UTF-8") from None
    except RecursionError:
        raise InvalidInput("JSON is nested too deeply") from None


def convert(kind: type[T], value: object) -> T:
    """The same for a parsed value."""
    try:
        return msgspec.convert(value, type=kind)
    except msgspec.MsgspecError as error:
        raise bad_body(error) from None


def bad_body(error: msgspec.MsgspecError) -> InvalidInput:
    """Converts msgspec's error: the path (`$.pods[0].gpu`) becomes the field (`pods[0].gpu`)."""
    text, _, path = str(error).partition(" - at `")
    name = path.rstrip("`").removeprefix("$").lstrip(".") or None
    if name is None or "required field" in text or "unknown field" in text:
        leaf = text.rpartition("`")[0].rpartition("`")[2]
        name = f"{name}.{leaf}" if name and leaf else (leaf or name) if " field `" in text else name
    return InvalidInput(text, field=name)


def to_json(body: Any) -> Any:
    """A body as plain dicts, lists, strings and numbers."""
    return msgspec.to_builtins(body)


def error_detail(error: GpuShareError) -> ErrorDetail:
    """The body of an error that is sent to a peer."""
    field = error.field or msgspec.UNSET
    return ErrorDetail(code=error.code, message=error.message, field=field)


def error_of(detail: ErrorDetail, status: int | None = None) -> GpuShareError:
    """The error that a peer sent, with its code, message and field. `status` is the HTTP status, if
    the error came over HTTP; an unknown code gets the class of its status.
    """
    kind = _CLASSES.get(detail.code) or _class_by_status(status)
    error = kind(detail.message, field=detail.field if isinstance(detail.field, str) else None)
    error.code = detail.code
    if status is not None:
        error.status_hint = status
    return error


def error_from(status: int, body: bytes) -> GpuShareError:
    """The error in the body of an HTTP answer. A body that cannot be read is `Unavailable`."""
    try:
        return error_of(decode(ErrorBody, body).error, status)
    except InvalidInput:
        return Unavailable(f"the scheduler answered {status} with a body that cannot be read")


def _class_by_status(status: int | None) -> type[GpuShareError]:
    if status is None:
        return GpuShareError
    return _CLASSES_BY_STATUS.get(status) or (Unavailable if status >= 500 else GpuShareError)
