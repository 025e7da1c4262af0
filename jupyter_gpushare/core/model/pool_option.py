"""What an option of a node pool is, and the places where options act.

An option is one `PoolOption` in a module of `core.pool_options`: its key in policy and scenario
files, the values that it takes, its default, its documentation, and the hook through which it acts.
The schema of the files, the comparison of policies, snapshots and the reference are derived from
it. All options are off unless the administrator sets them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

if TYPE_CHECKING:
    from .model import NodePool

__all__ = [
    "Choice",
    "Duration",
    "Hook",
    "OptionValue",
    "PoolOption",
    "Settings",
    "Switch",
    "WholeNumber",
    "chosen",
    "registered",
]

T = TypeVar("T")
ScalarValue = str | int | bool | None
OptionValue = ScalarValue | tuple[tuple[str, ScalarValue], ...]
"""Hashable; durations are ms. Several settings are pairs of key and value in the order of
`Settings`.
"""


@dataclass(frozen=True, slots=True)
class Choice:
    """One of these words."""

    words: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Duration:
    """A time such as `30m`, in ms; None: the option is off."""


@dataclass(frozen=True, slots=True)
class Switch:
    """On or off."""


@dataclass(frozen=True, slots=True)
class WholeNumber:
    """A number within these bounds; None: the option is off."""

    minimum: int
    maximum: int


ScalarValues = Choice | Duration | Switch | WholeNumber


@dataclass(frozen=True, slots=True)
class Settings:
    """A mapping of several settings, each with its values and default; None: the option is off."""

    parts: tuple[tuple[str, ScalarValues, ScalarValue], ...]

    def pairs(self, values: Mapping[str, ScalarValue]) -> tuple[tuple[str, ScalarValue], ...]:
        """These values as an `OptionValue`; what is missing has its default."""
        return tuple((key, values.get(key, default)) for key, _, default in self.parts)


Values = ScalarValues | Settings


class Hook(Generic[T]):
    """A place in the cycle where options act. `T` is what an option supplies there."""

    def __init__(self, name: str) -> None:
        self.name = name

    def all(self, pool: NodePool) -> Iterator[T]:
        """What the options of this pool supply, in the order of their keys."""
        for key, value in pool.options:
            option = _REGISTRY[key]
            if option.hook is self and (supplied := option.supply(value)) is not None:
                yield supplied

    def first(self, pool: NodePool) -> T | None:
        """What the first of these options supplies; None: no option acts here."""
        return next(self.all(pool), None)


@dataclass(frozen=True, slots=True)
class PoolOption(Generic[T]):
    """One option. Creating it registers it."""

    key: str
    """The key under `node_pools[]` in files."""
    values: Values
    default: OptionValue
    documentation: str
    """One sentence for the reference and the JSON Schema."""
    hook: Hook[T] = field(compare=False)
    supply: Callable[[Any], T | None] = field(compare=False)
    """What acts at the hook for a value other than the default; None: nothing."""

    def __post_init__(self) -> None:
        if self.key in _REGISTRY:
            raise ValueError(f"the node pool option {self.key!r} is defined twice")
        _REGISTRY[self.key] = self

    def of(self, pool: NodePool) -> OptionValue:
        """The value in this pool."""
        return dict(pool.options).get(self.key, self.default)


_REGISTRY: Final[dict[str, PoolOption[Any]]] = {}


def registered() -> Mapping[str, PoolOption[Any]]:
    """The options by key. Complete once `core.pool_options` has been imported."""
    return MappingProxyType(dict(sorted(_REGISTRY.items())))


def chosen(**values: OptionValue) -> tuple[tuple[str, OptionValue], ...]:
    """`NodePool.options` with these values; defaults are left out. Raises KeyError."""
    return tuple(
        (key, value) for key, value in sorted(values.items()) if value != _REGISTRY[key].default
    )
