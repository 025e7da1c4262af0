"""Whose GPU memory is whose, from one look at the driver. Pure: who owns a process was found out
before (`owners`).

Four kinds of memory are told apart on every device: what our kernels hold; what strangers hold
(counted, never touched, never offered); what the dead have left and the driver is still taking back
(it only lags); and what the driver counts without naming anybody. Of the last, what stays is a
stranger's (a process of another namespace, or the driver's own), and what has just appeared lags
too: a suspended or ended process leaves the list before its memory is free.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

__all__ = ["GONE", "STRANGER", "MemoryAccount", "ListedProcess", "account"]

MIB: Final = 1 << 20
STRANGER: Final = ""
"""The owner of a process that is no kernel's. A kernel's id is never empty."""
GONE: Final = "\0gone"
"""The owner of a process that has ended: nobody's. No kernel's id begins like this."""


@dataclass(frozen=True, slots=True)
class ListedProcess:
    """One process on one device, as the driver lists it, and its owner. `size` in bytes; None: the
    driver does not say how much.
    """

    gpu: int
    pid: int
    start: int
    size: int | None
    owner: str


@dataclass(frozen=True, slots=True)
class MemoryAccount:
    """MiB per device. `held` is rounded up, per kernel: one never holds more than we think.
    `nameless`: bytes that nobody is named for.

    `estimated`: devices on which the driver did not say who holds how much, so that it was divided
    evenly.
    """

    held: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    processes: Mapping[str, tuple[tuple[int, int], ...]] = field(default_factory=dict)
    each: Mapping[tuple[int, int], Mapping[int, int]] = field(default_factory=dict)
    foreign_mib: Mapping[int, int] = field(default_factory=dict)
    foreign_processes: Mapping[int, int] = field(default_factory=dict)
    lagging: Mapping[int, int] = field(default_factory=dict)
    nameless: Mapping[int, int] = field(default_factory=dict)
    estimated: frozenset[int] = frozenset()


def account(
    used: Mapping[int, int], listed: Sequence[ListedProcess], settled: Mapping[int, int]
) -> MemoryAccount:
    """Divide what is `used` (bytes per device) among those who are `listed`. `settled`: how much of
    what nobody is named for has been there for long (bytes per device); the rest lags.
    """
    held: dict[str, dict[int, int]] = {}
    each: dict[tuple[int, int], dict[int, int]] = {}
    processes: dict[str, set[tuple[int, int]]] = {}
    foreign, strangers, lagging, nameless = (dict.fromkeys(used, 0) for _ in range(4))
    estimated = set()
    for gpu, total in used.items():
        here = [one for one in listed if one.gpu == gpu]
        sizes, rest = _sizes(total, here)
        if any(one.size is None for one in here):
            estimated.add(gpu)
        for one, size in zip(here, sizes, strict=True):
            if one.owner == STRANGER:
                foreign[gpu] += size
                strangers[gpu] += 1
            elif one.owner == GONE:
                lagging[gpu] += size
            else:
                of = held.setdefault(one.owner, {})
                of[gpu] = of.get(gpu, 0) + size
                each.setdefault((one.pid, one.start), {})[gpu] = _up(size)
                processes.setdefault(one.owner, set()).add((one.pid, one.start))
        nameless[gpu] = rest
        foreign[gpu] += min(rest, settled.get(gpu, 0))
        lagging[gpu] += max(0, rest - settled.get(gpu, 0))
    return MemoryAccount(
        {name: {gpu: _up(size) for gpu, size in of.items()} for name, of in held.items()},
        {name: tuple(sorted(found)) for name, found in processes.items()},
        each,
        {gpu: _up(size) for gpu, size in foreign.items()},
        strangers,
        {gpu: _up(size) for gpu, size in lagging.items()},
        nameless,
        frozenset(estimated),
    )


def _sizes(total: int, here: Sequence[ListedProcess]) -> tuple[list[int], int]:
    """What each one holds, and what is left over for nobody. Who is not told about shares the
    difference evenly.
    """
    known = sum(one.size or 0 for one in here)
    unknown = sum(one.size is None for one in here)
    rest = max(0, total - known)
    if not unknown:
        return [one.size or 0 for one in here], rest
    return [rest // unknown if one.size is None else one.size for one in here], 0


def _up(size: int) -> int:
    return -(-size // MIB)
