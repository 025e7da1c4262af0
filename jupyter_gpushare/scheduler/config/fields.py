"""Types of single values in files: amounts, durations, names, labels. Each converts the text of the
file to the unit of the core, or reports what is wrong.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Final

from pydantic import BeforeValidator, Field, WithJsonSchema
from pydantic_core import PydanticCustomError

from jupyter_gpushare.core.model.amounts import MILLI, UNLIMITED
from jupyter_gpushare.core.model.errors import InvalidInput
from jupyter_gpushare.core.model.labels import check_label_key, check_label_value
from jupyter_gpushare.core.model.units import (
    duration_text,
    exact_gpu,
    read_cpu,
    read_duration,
    read_gpu,
    read_memory,
)

__all__ = [
    "Age",
    "Bytes",
    "BytesOrUnlimited",
    "Cores",
    "CoresOrUnlimited",
    "Duration",
    "Gpus",
    "GpusOrUnlimited",
    "Grace",
    "Id",
    "LabelKey",
    "LabelValue",
    "Name",
    "Notice",
    "Text",
    "Victims",
    "Weight",
    "Whole",
    "refused",
]

MOST_NAME: Final = 253
"""Characters of a name, as in Kubernetes."""


def refused(message: str) -> PydanticCustomError:
    """A validation error with this message; unlike for ValueError, pydantic adds no prefix."""
    return PydanticCustomError("refused", "{said}", {"said": message})


def _quantity(read: Callable[..., int], **options: Any) -> BeforeValidator:
    """A reader of `core.model.units` as a validator."""

    def validate(value: object) -> int:
        try:
            return read(value, what="", **options)
        except InvalidInput as error:
            raise refused(error.message.strip()) from None

    return BeforeValidator(validate)


def _text(value: object) -> object:
    """Numbers are accepted as text, since people write `name: 5` and `value: 8`."""
    return str(value) if isinstance(value, int | float) and not isinstance(value, bool) else value


def _name(value: object) -> object:
    text = _text(value)
    if not isinstance(text, str):
        raise refused(f"must be a name, got {text!r}")
    if (
        not text.strip()
        or text != text.strip()
        or len(text) > MOST_NAME
        or not text.isprintable()
        or "/" in text
    ):
        raise refused(
            f"must be a name of 1 to {MOST_NAME} printable characters without '/' and without"
            f" spaces around it, got {text[:80]!r}"
        )
    return text


def _id(value: object) -> object:
    """The id of a workload or a pod: any printable characters."""
    text = _text(value)
    if (
        not isinstance(text, str)
        or not text.strip()
        or len(text) > MOST_NAME
        or not text.isprintable()
    ):
        raise refused(
            f"must be a name of 1 to {MOST_NAME} printable characters, got {str(text)[:80]!r}"
        )
    return text


def _label(check: Callable[[str], None]) -> BeforeValidator:
    def validate(value: object) -> str:
        text = _text(value)
        if not isinstance(text, str):
            raise refused(f"must be text, got {text!r}")
        try:
            check(text)
        except InvalidInput as error:
            raise refused(error.message) from None
        return text

    return BeforeValidator(validate)


def _age(value: object, *, what: str) -> int:
    return read_duration(value, what=what)


def _duration(value: object, *, what: str) -> int:
    duration = read_duration(value, what=what)
    if duration < 0:
        raise InvalidInput(f"must not be negative, got {value}")
    return duration


def _notice(value: object, *, what: str) -> int:
    notice, (shortest, longest) = read_duration(value, what=what), NOTICE
    if not shortest <= notice <= longest:
        bound = (
            f"at least {duration_text(shortest)}"
            if notice < shortest
            else f"at most {duration_text(longest)}"
        )
        raise InvalidInput(f"must be {bound}, got {value!r}")
    return notice


def _grace(value: object, *, what: str) -> int:
    """A duration; `unlimited`, or a negative one: never."""
    duration = UNLIMITED if value == "unlimited" else read_duration(value, what=what)
    return UNLIMITED if duration < 0 else duration


def _weight(value: object, *, what: str) -> int:
    """Thousandths. Unlike for GPUs, large weights and 0.0005 are valid."""
    weight = exact_gpu(value, what=what)
    return 0 if weight is None else int(weight * MILLI)


def _victims(value: object, *, what: str) -> int:  # noqa: ARG001 - the signature of a reader
    if value == "unlimited":
        return UNLIMITED
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise InvalidInput(f"must be a whole number of at least 0, or 'unlimited', got {value!r}")
    return value


NOTICE: Final = (5_000, 3_600_000)
"""ms: a shorter notice leaves no time to save work, a longer one blocks the GPU's owner."""
_AMOUNT: Final = WithJsonSchema({"anyOf": [{"type": "number", "minimum": 0}, {"type": "string"}]})
_TIME: Final = WithJsonSchema(
    {"anyOf": [{"type": "number"}, {"type": "string", "pattern": "^-?[0-9.]+(ms|s|m|h|d|w)?$"}]}
)

Gpus = Annotated[int, _quantity(read_gpu), _AMOUNT]
GpusOrUnlimited = Annotated[int, _quantity(read_gpu, unlimited=True), _AMOUNT]
Cores = Annotated[int, _quantity(read_cpu), _AMOUNT]
CoresOrUnlimited = Annotated[int, _quantity(read_cpu, unlimited=True), _AMOUNT]
Bytes = Annotated[int, _quantity(read_memory), _AMOUNT]
"""MiB."""
BytesOrUnlimited = Annotated[int, _quantity(read_memory, unlimited=True), _AMOUNT]
Weight = Annotated[int, _quantity(_weight), _AMOUNT]
Duration = Annotated[int, _quantity(_duration), _TIME]
"""ms."""
Notice = Annotated[int, _quantity(_notice), _TIME]
"""ms, within `NOTICE`."""
Grace = Annotated[int, _quantity(_grace), _TIME]
Age = Annotated[int, _quantity(_age), _TIME]
"""ms; may be negative."""
Victims = Annotated[
    int,
    _quantity(_victims),
    WithJsonSchema({"anyOf": [{"type": "integer", "minimum": 0}, {"const": "unlimited"}]}),
]
Name = Annotated[str, BeforeValidator(_name)]
Id = Annotated[str, BeforeValidator(_id)]
Text = Annotated[str, BeforeValidator(_text)]
LabelKey = Annotated[str, _label(check_label_key)]
"""A label key as in Kubernetes, such as `topology.kubernetes.io/zone`."""
LabelValue = Annotated[str, _label(check_label_value)]
Whole = Annotated[int, Field(strict=True, ge=-1_000_000_000, le=1_000_000_000)]
