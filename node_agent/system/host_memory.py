"""Host memory as a budget for saved GPU memory.

A saved image is memory of the suspended process: it counts against the machine and against every
cgroup above that process. A container with 16 GiB whose kernel holds 40 GiB on the GPU would be
killed by saving it. Before anything is saved, the memory held on GPUs (an upper bound of the image)
must therefore fit into the administrator's budget, into the memory that the machine can provide
without swapping, less a reserve, and into every ancestor cgroup; copies in progress count as
complete. The page cache of files can be reclaimed and counts as free; shared memory cannot,
although Linux lists it as "cache".
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from jupyter_gpushare.core.model.units import memory_text

from .cgroup_paths import cgroup_directory, cgroup_path

__all__ = ["CgroupMemory", "HostReading", "read_host", "refusal", "reserve_of", "room_for_images"]

MIB: Final = 1 << 20
RESERVE_FRACTION: Final = 20
"""Default reserve: a twentieth of the machine's memory, at least 1 GiB."""
HIDDEN: Final = (
    "the memory limits of its container cannot be seen: the agent needs the host's /sys/fs/cgroup"
)
FileNames = tuple[str, str, tuple[str, str]]
"""Limit, usage, and what of memory.stat is reclaimable."""
V2: Final[FileNames] = ("memory.max", "memory.current", ("inactive_file", "active_file"))
V1: Final[FileNames] = (
    "memory.limit_in_bytes",
    "memory.usage_in_bytes",
    ("total_inactive_file", "total_active_file"),
)
NO_LIMIT: Final = 1 << 60
"""Cgroup v1 writes "no limit" as a number of about this size."""


@dataclass(frozen=True, slots=True)
class CgroupMemory:
    """A cgroup with a memory limit, in MiB; `cache`: reclaimable part of `used`."""

    path: str
    limit: int
    used: int
    cache: int

    def room(self) -> int:
        """Memory that is still available inside it."""
        return self.limit - self.used + self.cache


@dataclass(frozen=True, slots=True)
class HostReading:
    """Memory of the machine, and the limited cgroups above some processes. MiB. `hidden`: some of
    their cgroups cannot be seen.
    """

    total: int
    available: int
    groups: tuple[CgroupMemory, ...] = ()
    hidden: bool = False


def reserve_of(total: int, configured: int | None) -> int:
    """MiB that saved images must leave free."""
    return max(1024, total // RESERVE_FRACTION) if configured is None else configured


def refusal(
    need: int,
    saved: int,
    in_flight: int,
    budget: int | None,
    host: HostReading | None,
    reserve: int | None = None,
) -> str:
    """Why `need` MiB cannot be saved now; "" when they can. `saved`: existing images (the machine
    counts them already); `in_flight`: copies in progress. `budget`: limit for all images; None:
    none. `host`: None where images use no host memory.
    """
    if budget is not None and saved + in_flight + need > budget:
        taken = f"{memory_text(saved + in_flight)} of {memory_text(budget)} are taken"
        return f"{memory_text(need)} do not fit into the host memory for saved GPU state: {taken}"
    if host is None:
        return ""
    if host.hidden:
        return HIDDEN
    left = host.available - reserve_of(host.total, reserve) - in_flight
    if need > left:
        room = memory_text(max(0, left))
        return f"the machine has not enough free memory to save it ({room} available)"
    for group in host.groups:
        if need > group.room() - in_flight:
            room = memory_text(max(0, group.room() - in_flight))
            return f"its container has not enough memory to save it ({room} left in {group.path})"
    return ""


def room_for_images(
    saved: int,
    in_flight: int,
    budget: int | None,
    host: HostReading | None,
    reserve: int | None = None,
) -> int | None:
    """MiB that can still be saved on this node; None: no limit is known. The same arguments as
    `refusal`: that may refuse less, because of the container of a kernel.
    """
    rooms = [] if budget is None else [budget - saved - in_flight]
    if host is not None:
        rooms.append(host.available - reserve_of(host.total, reserve) - in_flight)
    return max(0, min(rooms)) if rooms else None


def read_host(
    pids: Iterable[int], proc: Path = Path("/proc"), cgroups: Path = Path("/sys/fs/cgroup")
) -> HostReading:
    """The machine, and the limits above these processes; processes that ended have none. Raises
    OSError without /proc.
    """
    memory = dict(_numbers((proc / "meminfo").read_text()))
    found: dict[str, CgroupMemory] = {}
    hidden = False
    for pid in pids:
        place = _memory_cgroup(pid, proc, cgroups)
        if place is None:
            continue
        hidden = hidden or place.folder is None
        for group in _limits(place):
            found[group.path] = group
    return HostReading(
        memory["MemTotal:"] // 1024, memory["MemAvailable:"] // 1024, tuple(found.values()), hidden
    )


def _numbers(text: str) -> Iterator[tuple[str, int]]:
    for line in text.splitlines():
        words = line.split()
        if len(words) > 1 and words[1].isdecimal():
            yield words[0], int(words[1])


class _MemoryCgroup(NamedTuple):
    """The cgroup of a process in one hierarchy; `folder` is None if it cannot be seen."""

    folder: Path | None
    root: Path
    names: FileNames


def _memory_cgroup(pid: int, proc: Path, cgroups: Path) -> _MemoryCgroup | None:
    """Where memory is limited: by cgroup v1 if that has the controller, else by cgroup v2."""
    for controller, root, names in (("memory", cgroups / "memory", V1), ("", cgroups, V2)):
        if path := cgroup_path(pid, controller, proc):
            return _MemoryCgroup(cgroup_directory(path, root, controller, proc), root, names)
    return None


def _limits(place: _MemoryCgroup) -> Iterator[CgroupMemory]:
    """From the process's own cgroup to the visible root (in a container, the container's)."""
    limit, usage, caches = place.names
    for at in () if place.folder is None else (place.folder, *place.folder.parents):
        if not at.is_relative_to(place.root):
            return
        try:
            value = (at / limit).read_text().strip()
            if value != "max" and int(value) < NO_LIMIT:
                stat = dict(_numbers((at / "memory.stat").read_text()))
                cache = sum(stat.get(name, 0) for name in caches)
                yield CgroupMemory(
                    str(at), int(value) // MIB, int((at / usage).read_text()) // MIB, cache // MIB
                )
        except (OSError, ValueError):
            continue  # the root cgroup lacks these files, and a cgroup may be removed meanwhile
