"""Attributes GPU memory to kernels, from one reading of the driver. Pure: the owner of each process
was determined before (`devices.base.process_attribution`).

Memory of a device is one of four kinds: held by kernels; held by other processes (counted, never
touched, never offered); held by processes that ended, which the driver still reclaims (lagging);
and memory that the driver attributes to no process. Of the last, the part that persists belongs to
other processes (of another namespace, or the driver itself), and the part that appeared recently is
lagging too: a suspended or ended process leaves the list before its memory is free.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

__all__ = ["ENDED", "FOREIGN", "ListedProcess", "MemoryAccount", "attribute_memory"]

MIB: Final = 1 << 20
FOREIGN: Final = ""
"""Owner of a process that belongs to no kernel. A kernel id is never empty."""
ENDED: Final = "\0gone"
"""Owner of a process that has ended. No kernel id begins like this."""


@dataclass(frozen=True, slots=True)
class ListedProcess:
    """A process on a device, as the driver lists it, and its owner. `size` in bytes; None: the
    driver does not say.
    """

    gpu: int
    pid: int
    start: int
    size: int | None
    owner: str


@dataclass(frozen=True, slots=True)
class MemoryAccount:
    """MiB per device. `held`: per kernel, rounded up; `per_process`: by (pid, start time);
    `unattributed`: bytes that the driver attributes to no process.

    `estimated`: devices whose driver does not report the memory of each process, so that it was
    divided evenly.
    """

    held: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    processes: Mapping[str, tuple[tuple[int, int], ...]] = field(default_factory=dict)
    per_process: Mapping[tuple[int, int], Mapping[int, int]] = field(default_factory=dict)
    foreign_mib: Mapping[int, int] = field(default_factory=dict)
    foreign_processes: Mapping[int, int] = field(default_factory=dict)
    lagging: Mapping[int, int] = field(default_factory=dict)
    unattributed: Mapping[int, int] = field(default_factory=dict)
    estimated: frozenset[int] = frozenset()


class _Totals:
    """Sums in bytes."""

    def __init__(self, gpus: Mapping[int, int]) -> None:
        self.held: dict[str, dict[int, int]] = {}
        self.per_process: dict[tuple[int, int], dict[int, int]] = {}
        self.processes: dict[str, set[tuple[int, int]]] = {}
        self.foreign = dict.fromkeys(gpus, 0)
        self.foreign_processes = dict.fromkeys(gpus, 0)
        self.lagging = dict.fromkeys(gpus, 0)

    def add(self, process: ListedProcess, size: int) -> None:
        gpu = process.gpu
        if process.owner == FOREIGN:
            self.foreign[gpu] += size
            self.foreign_processes[gpu] += 1
        elif process.owner == ENDED:
            self.lagging[gpu] += size
        else:
            kernel = self.held.setdefault(process.owner, {})
            kernel[gpu] = kernel.get(gpu, 0) + size
            key = process.pid, process.start
            self.per_process.setdefault(key, {})[gpu] = _mib_up(size)
            self.processes.setdefault(process.owner, set()).add(key)


def attribute_memory(
    used: Mapping[int, int], listed: Sequence[ListedProcess], persistent: Mapping[int, int]
) -> MemoryAccount:
    """Divide the memory in use (bytes per device) among the listed processes. `persistent`: how
    much of the unattributed memory (bytes per device) has been there for long; the rest is lagging.
    """
    totals, unattributed, estimated = _Totals(used), {}, set()
    for gpu, total in used.items():
        processes = [process for process in listed if process.gpu == gpu]
        sizes, rest = _sizes(total, processes)
        if any(process.size is None for process in processes):
            estimated.add(gpu)
        for process, size in zip(processes, sizes, strict=True):
            totals.add(process, size)
        unattributed[gpu] = rest
        totals.foreign[gpu] += min(rest, persistent.get(gpu, 0))
        totals.lagging[gpu] += max(0, rest - persistent.get(gpu, 0))
    return MemoryAccount(
        held={name: _in_mib(sizes) for name, sizes in totals.held.items()},
        processes={name: tuple(sorted(found)) for name, found in totals.processes.items()},
        per_process=totals.per_process,
        foreign_mib=_in_mib(totals.foreign),
        foreign_processes=totals.foreign_processes,
        lagging=_in_mib(totals.lagging),
        unattributed=unattributed,
        estimated=frozenset(estimated),
    )


def _sizes(total: int, processes: Sequence[ListedProcess]) -> tuple[list[int], int]:
    """The memory of each process, and the unattributed rest. Processes of unknown size share the
    rest evenly.
    """
    sizes = [process.size for process in processes]
    unknown = sizes.count(None)
    rest = max(0, total - sum(size or 0 for size in sizes))
    if not unknown:
        return [size or 0 for size in sizes], rest
    return [rest // unknown if size is None else size for size in sizes], 0


def _in_mib(sizes: Mapping[int, int]) -> dict[int, int]:
    return {gpu: _mib_up(size) for gpu, size in sizes.items()}


def _mib_up(size: int) -> int:
    return -(-size // MIB)
