"""Text form of amounts: `0.5`, `20GiB`, `500m`, `30s`, `unlimited`.

Every reader raises `InvalidInput` with a message that names the value and the accepted format.
"""

from __future__ import annotations

import math
import re
from decimal import Decimal, InvalidOperation
from typing import Final

from .amounts import MILLI, UNLIMITED, is_unlimited
from .errors import InvalidInput

__all__ = [
    "exact_cpu",
    "exact_gpu",
    "exact_memory",
    "gpu_text",
    "memory_text",
    "read_cpu",
    "read_duration",
    "read_gpu",
    "read_memory",
]

MAX_GPUS: Final = 1_000_000
"""Upper bound for plausible input; a larger number is a typing error."""
_KI: Final = 1024
_MEMORY_UNITS: Final = {
    "": Decimal(1),
    "B": Decimal(1) / (_KI * _KI),
    "KiB": Decimal(1) / _KI,
    "MiB": Decimal(1),
    "GiB": Decimal(_KI),
    "TiB": Decimal(_KI**2),
    "KB": Decimal(10**3) / _KI**2,
    "MB": Decimal(10**6) / _KI**2,
    "GB": Decimal(10**9) / _KI**2,
    "TB": Decimal(10**12) / _KI**2,
    "Ki": Decimal(1) / _KI,
    "Mi": Decimal(1),
    "Gi": Decimal(_KI),
    "Ti": Decimal(_KI**2),
}
_DURATION_UNITS: Final = {
    "ms": 1,
    "s": 1000,
    "m": 60_000,
    "h": 3_600_000,
    "d": 86_400_000,
    "w": 7 * 86_400_000,
}
_NUMBER_AND_UNIT: Final = re.compile(
    r"\s*([+-]?[0-9]*\.?[0-9]+(?:[eE][+-]?[0-9]+)?)\s*([A-Za-z]*)\s*"
)


def _number(value: object, what: str, accepted: str) -> Decimal:
    if isinstance(value, bool) or not isinstance(value, (int, float, str, Decimal)):
        raise InvalidInput(f"{what} must be {accepted}, got {value!r}")
    try:
        number = Decimal(str(value).strip())
    except InvalidOperation:
        raise InvalidInput(f"{what} must be {accepted}, got {value!r}") from None
    # A huge exponent would overflow when multiplied by a unit, and would exhaust memory when
    # printed.
    if not number.is_finite() or abs(number.adjusted()) > 100:
        raise InvalidInput(f"{what} must be {accepted}, got {value!r}")
    return number


def _or_unlimited(unlimited: bool) -> str:
    return ", or 'unlimited'" if unlimited else ""


def _is_word_unlimited(value: object) -> bool:
    return isinstance(value, str) and value.strip().lower() == "unlimited"


def exact_gpu(value: object, *, what: str = "gpu", unlimited: bool = False) -> Decimal | None:
    """GPUs, exactly as written (`0.5`, `"2"`); None for `unlimited`, if that is accepted."""
    if unlimited and _is_word_unlimited(value):
        return None
    number = _number(value, what, "a number of GPUs such as 0.5 or 2" + _or_unlimited(unlimited))
    if number < 0:
        raise InvalidInput(f"{what} must not be negative, got {value}")
    if number > MAX_GPUS:
        raise InvalidInput(f"{what} is too many GPUs, got {value}")
    return number


def exact_cpu(value: object, *, what: str = "cpu", unlimited: bool = False) -> Decimal | None:
    """Cores, exactly as written (`4`, `0.5`, `500m`); None for `unlimited`."""
    if unlimited and _is_word_unlimited(value):
        return None
    accepted = "cores such as 4 or 500m" + _or_unlimited(unlimited)
    text = value.strip() if isinstance(value, str) else ""
    number = (
        _number(text[:-1], what, accepted) / MILLI
        if text.endswith("m")
        else _number(value, what, accepted)
    )
    if number < 0:
        raise InvalidInput(f"{what} must not be negative, got {value}")
    if number > MAX_GPUS * MILLI:
        raise InvalidInput(f"{what} is too many cores, got {value}")
    return number


def exact_memory(
    value: object, *, what: str = "memory", unlimited: bool = False, needs_unit: bool = False
) -> Decimal | None:
    """MiB, exactly as written (`20GiB`, `512MiB`); None for `unlimited`. A bare number is MiB, or
    an error if a unit is needed: people who write `20` mostly mean GiB.
    """
    if unlimited and _is_word_unlimited(value):
        return None
    accepted = "a size such as 20GiB or 512MiB" + _or_unlimited(unlimited)
    match = (
        _NUMBER_AND_UNIT.fullmatch(str(value))
        if not isinstance(value, bool) and isinstance(value, (int, float, str))
        else None
    )
    if match is None or match[2] not in _MEMORY_UNITS:
        raise InvalidInput(f"{what} must be {accepted}, got {value!r}")
    number = _number(match[1], what, accepted)
    if needs_unit and number > 0 and not match[2]:
        raise InvalidInput(f"{what} needs a unit: {match[1]}GiB or {match[1]}MiB")
    mib = number * _MEMORY_UNITS[match[2]]
    if mib < 0:
        raise InvalidInput(f"{what} must not be negative, got {value}")
    if mib > 1 << 40:
        raise InvalidInput(f"{what} is too much memory, got {value}")
    return mib


def read_gpu(value: object, *, what: str = "gpu", unlimited: bool = False) -> int:
    """Milli-GPU from a number of GPUs (`0.5`, `"2"`), truncated to whole milli-GPU.

    Truncation keeps the rounding of quotas to two decimals exact. Values between 0 and 0.001 are
    refused.
    """
    number = exact_gpu(value, what=what, unlimited=unlimited)
    if number is None:
        return UNLIMITED
    if 0 < number * MILLI < 1:
        raise InvalidInput(f"{what} must be at least 0.001 GPU (or 0), got {value}")
    return math.floor(number * MILLI)


def read_cpu(value: object, *, what: str = "cpu", unlimited: bool = False) -> int:
    """Milli-CPU from cores (`4`, `0.5`) or from `500m`; rounded half up."""
    number = exact_cpu(value, what=what, unlimited=unlimited)
    return UNLIMITED if number is None else math.floor(number * MILLI + Decimal("0.5"))


def read_memory(
    value: object, *, what: str = "memory", unlimited: bool = False, needs_unit: bool = False
) -> int:
    """MiB from text with a unit (`20GiB`, `512MiB`), rounded up to whole MiB. A bare number is MiB,
    or an error if a unit is needed.
    """
    number = exact_memory(value, what=what, unlimited=unlimited, needs_unit=needs_unit)
    return UNLIMITED if number is None else math.ceil(number)


def read_duration(value: object, *, what: str = "time") -> int:
    """Milliseconds from text with a unit (`30s`, `5m`, `7d`); a bare number is seconds. May be
    negative; callers check the sign.
    """
    accepted = "a time such as 30s, 5m or 7d"
    match = (
        _NUMBER_AND_UNIT.fullmatch(str(value))
        if not isinstance(value, bool) and isinstance(value, (int, float, str))
        else None
    )
    if match is None or (match[2] and match[2] not in _DURATION_UNITS):
        raise InvalidInput(f"{what} must be {accepted}, got {value!r}")
    ms = _number(match[1], what, accepted) * _DURATION_UNITS[match[2] or "s"]
    if abs(ms) > 1 << 50:
        raise InvalidInput(f"{what} is out of range, got {value}")
    return math.floor(ms + Decimal("0.5"))


def gpu_text(milli_gpu: int) -> str:
    """Milli-GPU as text: `0.5`, `2`, `unlimited`."""
    if is_unlimited(milli_gpu):
        return "unlimited"
    return f"{milli_gpu / MILLI:.3f}".rstrip("0").rstrip(".")


def duration_text(ms: int) -> str:
    """Milliseconds as text, with at most two units: `90 s`, `20 min`, `2 h 30 min`, `7 d`."""
    seconds = max(0, round(ms / 1000))
    if seconds < 120:
        return f"{seconds} s"
    for size, unit, small, smaller in (
        (86_400, "d", 3600, "h"),
        (3600, "h", 60, "min"),
        (60, "min", 1, "s"),
    ):
        if seconds >= size:
            whole, rest = seconds // size, seconds % size // small
            return f"{whole} {unit} {rest} {smaller}" if rest and whole < 10 else f"{whole} {unit}"
    raise AssertionError("unreachable")


def memory_text(mib: int) -> str:
    """MiB as text: `70 GiB`, `512 MiB`, `30.5 GiB`, `unlimited`."""
    if is_unlimited(mib):
        return "unlimited"
    if abs(mib) < _KI:
        return f"{mib} MiB"
    return f"{mib / _KI:.1f}".rstrip("0").rstrip(".") + " GiB"
