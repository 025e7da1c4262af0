"""Bodies to JSON and back; a body that cannot be read becomes `InvalidInput` with the field's name."""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

from jupyter_gpushare.core.model.errors import InvalidInput

__all__ = ["bad_body", "convert", "decode", "encode", "to_json"]

T = TypeVar("T")

_encoder = msgspec.json.Encoder()


def encode(body: Any) -> bytes:
    """A body as JSON."""
    return _encoder.encode(body)


def decode(kind: type[T], data: bytes | str) -> T:
    """A body of this kind (a class or a union of tagged ones).

    Raises:
        InvalidInput: what is wrong, with the field's name when one is at fault.
    """
    try:
        return msgspec.json.decode(data, type=kind)
    except msgspec.MsgspecError as error:
        raise bad_body(error) from None
    except RecursionError:
        raise InvalidInput("JSON is nested too deeply") from None


def convert(kind: type[T], value: object) -> T:
    """The same for a value that was parsed already."""
    try:
        return msgspec.convert(value, type=kind)
    except msgspec.MsgspecError as error:
        raise bad_body(error) from None


def bad_body(error: msgspec.MsgspecError) -> InvalidInput:
    """msgspec's error as ours, with the path (`$.pods[0].gpu`) as the field (`pods[0].gpu`)."""
    text, _, path = str(error).partition(" - at `")
    name = path.rstrip("`").removeprefix("$").lstrip(".") or None
    if name is None or "required field" in text or "unknown field" in text:
        leaf = text.rpartition("`")[0].rpartition("`")[2]
        name = f"{name}.{leaf}" if name and leaf else (leaf or name) if " field `" in text else name
    return InvalidInput(text, field=name)


def to_json(body: Any) -> Any:
    """A body as plain dicts, lists, strings and numbers."""
    return msgspec.to_builtins(body)
