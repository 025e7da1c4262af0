"""The host's memory as a budget for saved GPU memory: one ledger, which is the books, and what the
machine says it has left.

A saved image lives in the suspended process itself: it counts against the machine and against every
cgroup above that process. A container with 16 GiB whose kernel holds 40 GiB on the GPU would be
killed by saving it. So before anything is saved: what it holds on GPUs (an upper bound of the
image) must fit into the budget of the administrator, into what the machine can give without
swapping, less a reserve, and into every ancestor cgroup; copies under way count as if they were
done. The page cache of files can be given up, and counts as free; memory shared between processes
cannot, although the kernel files it under "cache".
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from jupyter_gpushare.core.model.units import memory_text

__all__ = ["CgroupMemory", "HostReading", "read_host", "refusal", "reserve_of"]

MIB: Final = 1 << 20
RESERVE_PART: Final = 20
"""A twentieth of the machine's memory, at least 1 GiB, is left to others unless the administrator
says otherwise.
"""
V2: Final = ("memory.max", "memory.current", ("inactive_file", "active_file"))
V1: Final = (
    "memory.limit_in_bytes",
    "memory.usage_in_bytes",
    ("total_inactive_file", "total_active_file"),
)
NO_LIMIT: Final = 1 << 60
"""Cgroup v1 writes "no limit" as a number of about this size."""


@dataclass(frozen=True, slots=True)
class CgroupMemory:
    """One cgroup with a bound, in MiB; `cache`: of `used`, what the kernel would give up for us."""

    path: str
    bound: int
    used: int
    cache: int

    def room(self) -> int:
        """What may still be taken inside it."""
        return self.bound - self.used + self.cache


@dataclass(frozen=True, slots=True)
class HostReading:
    """The machine at one moment, and the bounded cgroups above some processes. MiB."""

    total: int
    available: int
    groups: tuple[CgroupMemory, ...] = ()


def reserve_of(total: int, stated: int | None) -> int:
    """What saved images must leave to others."""
    return max(1024, total // RESERVE_PART) if stated is None else stated


def refusal(
    need: int,
    saved: int,
    on_the_way: int,
    bound: int | None,
    host: HostReading | None,
    reserve: int | None = None,
) -> str:
    """Why `need` MiB cannot be saved now; "" when they can. `saved` images exist already (the
    machine has counted them), those `on_the_way` are promised. `bound`: the budget for all of them;
    None: none. `host`: None where saving takes no host memory.
    """
    if bound is not None and saved + on_the_way + need > bound:
        taken = f"{memory_text(saved + on_the_way)} of {memory_text(bound)} are taken"
        return f"{memory_text(need)} do not fit into the host memory for saved GPU state: {taken}"
    if host is None:
        return ""
    left = host.available - reserve_of(host.total, reserve) - on_the_way
    if need > left:
        return f"the machine has not enough free memory to save it ({memory_text(max(0, left))} can be used)"
    for group in host.groups:
        if need > group.room() - on_the_way:
            return f"its container has not enough memory to save it ({memory_text(max(0, group.room() - on_the_way))} left in {group.path})"
    return ""


def read_host(
    pids: Iterable[int], proc: Path = Path("/proc"), cgroups: Path = Path("/sys/fs/cgroup")
) -> HostReading:
    """What the machine has, and the bounds above these processes. A process that is gone has none;
    raises OSError without /proc.
    """
    memory = dict(_numbers((proc / "meminfo").read_text()))
    found: dict[str, CgroupMemory] = {}
    for pid in pids:
        for group in _bounds(pid, proc, cgroups):
            found[group.path] = group
    return HostReading(
        memory["MemTotal:"] // 1024, memory["MemAvailable:"] // 1024, tuple(found.values())
    )


def _numbers(text: str) -> Iterator[tuple[str, int]]:
    for line in text.splitlines():
        words = line.split()
        if len(words) > 1 and words[1].isdecimal():
            yield words[0], int(words[1])


def _bounds(pid: int, proc: Path, cgroups: Path) -> Iterator[CgroupMemory]:
    try:
        lines = (proc / str(pid) / "cgroup").read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if not controllers:
            yield from _ancestors(cgroups, path, V2)
        elif "memory" in controllers.split(","):
            yield from _ancestors(cgroups / "memory", path, V1)


def _ancestors(
    root: Path, path: str, names: tuple[str, str, tuple[str, str]]
) -> Iterator[CgroupMemory]:
    """From the process's own cgroup up to the root that we see (in a container, the container's)."""
    limit, usage, caches = names
    folder = root / path.strip("/")
    for at in (folder, *folder.parents):
        if not at.is_relative_to(root):
            return
        try:
            bound = (at / limit).read_text().strip()
            if bound != "max" and int(bound) < NO_LIMIT:
                stat = dict(_numbers((at / "memory.stat").read_text()))
                cache = sum(stat.get(name, 0) for name in caches)
                yield CgroupMemory(
                    str(at), int(bound) // MIB, int((at / usage).read_text()) // MIB, cache // MIB
                )
        except (OSError, ValueError):
            continue  # the root of all has none of these files; a cgroup may go away while we read
