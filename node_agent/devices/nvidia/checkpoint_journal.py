"""Whose GPU memory is in host memory, and what was under way: a small file that is written before
the driver is asked for anything.

The driver knows the state of each process, but a saved process is in no list of the driver's:
without this record a restarted agent would not know whom to ask. Replaced atomically and not forced
to the disk, as the journal: when the machine dies, the processes are gone too.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from ...system.processes import ProcessId

__all__ = ["CheckpointEntry", "CheckpointJournal", "CheckpointRecord", "SavedImage"]

log = logging.getLogger("gpushare.agent")


class SavedImage(msgspec.Struct, frozen=True):
    """One process: what it held on each GPU (index -> MiB) before it was asked to go; an upper
    bound of its image.
    """

    pid: int
    start: int
    held: dict[int, int]

    def ident(self) -> ProcessId:
        """Who it is."""
        return ProcessId(self.pid, self.start)


class CheckpointEntry(msgspec.Struct):
    """One kernel: its GPU per ordinal, its processes, and whether somebody must look at their
    states.
    """

    where: tuple[int, ...] = ()
    saved: tuple[SavedImage, ...] = ()
    doubtful: bool = True


class _CheckpointFile(msgspec.Struct):
    kernels: dict[str, CheckpointEntry] = msgspec.field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CheckpointJournal:
    """One kernel: MiB per device ordinal in host memory, and whose; `half_done`: somebody must look
    at the states of its processes.
    """

    image: tuple[int, ...] = ()
    processes: tuple[ProcessId, ...] = ()
    suspended: bool = False
    half_done: bool = False


@dataclass(slots=True)
class CheckpointRecord:
    """The file, and what it says. Safe to use from several threads.

    An entry is `doubtful` from before the first call until the states are known to be what the
    entry says; entries found in the file at the start are doubtful.
    """

    path: Path
    _entries: dict[str, CheckpointEntry] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        try:
            self._entries = msgspec.json.decode(
                self.path.read_bytes(), type=_CheckpointFile
            ).kernels
        except FileNotFoundError:
            pass
        except (OSError, msgspec.MsgspecError) as error:
            log.warning(
                "%s cannot be read: saved kernels are found by asking their processes: %s",
                self.path,
                error,
            )
        for entry in self._entries.values():
            entry.doubtful = True

    def begin(
        self, kernel_id: str, where: tuple[int, ...] = (), saved: tuple[SavedImage, ...] = ()
    ) -> CheckpointEntry | None:
        """Something is about to be done to this kernel's processes; what was saved before stays
        known. Returns the entry as it was.
        """
        with self._lock:
            before = self._entries.get(kernel_id)
            old = before or CheckpointEntry()
            known = {one.ident(): one for one in (*old.saved, *saved)}
            self._entries[kernel_id] = CheckpointEntry(old.where or where, tuple(known.values()))
            self._write()
        return before

    def put_back(self, kernel_id: str, before: CheckpointEntry | None) -> None:
        """Nothing has changed: the entry is what `begin` found."""
        with self._lock:
            self._entries.pop(kernel_id, None)
            if before is not None:
                self._entries[kernel_id] = before
            self._write()

    def park(self, kernel_id: str, idents: set[ProcessId]) -> None:
        """Exactly these processes are saved now; none: the entry goes."""
        with self._lock:
            entry = self._entries.pop(kernel_id, CheckpointEntry())
            known = {one.ident(): one for one in entry.saved}
            saved = tuple(
                known.get(ident, SavedImage(ident.pid, ident.start, {}))
                for ident in sorted(idents, key=lambda i: i.pid)
            )
            if saved:
                self._entries[kernel_id] = CheckpointEntry(
                    entry.where or (0,), saved, doubtful=False
                )
            self._write()

    def of(self, kernel_id: str) -> tuple[tuple[int, ...], tuple[SavedImage, ...]]:
        """(GPU per ordinal, living processes) as noted."""
        with self._lock:
            entry = self._entries.get(kernel_id, CheckpointEntry())
            return entry.where, tuple(one for one in entry.saved if one.ident().is_alive())

    def all(self, working: set[str]) -> Mapping[str, CheckpointJournal]:
        """Every kernel with an entry; those that somebody works on right now are not half done.
        Entries of the dead go.
        """
        with self._lock:
            dead = [
                name
                for name, entry in self._entries.items()
                if entry.saved and not any(s.ident().is_alive() for s in entry.saved)
            ]
            for name in dead:
                if name not in working:
                    del self._entries[name]
            return {name: _view(entry, name in working) for name, entry in self._entries.items()}

    def _write(self) -> None:
        fresh = self.path.with_suffix(".new")
        try:
            with os.fdopen(
                os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb"
            ) as file:
                file.write(msgspec.json.encode(_CheckpointFile(self._entries)))
            fresh.replace(self.path)
        # a full disk: an agent that dies now finds its kernels by asking their processes
        except OSError as error:
            log.warning("%s cannot be written: %s", self.path, error)


def _view(entry: CheckpointEntry, is_worked_on: bool) -> CheckpointJournal:
    if entry.doubtful:
        return CheckpointJournal(half_done=not is_worked_on)
    alive = [one for one in entry.saved if one.ident().is_alive()]
    extra = sorted({gpu for one in alive for gpu in one.held} - set(entry.where))
    image = tuple(sum(one.held.get(gpu, 0) for one in alive) for gpu in (*entry.where, *extra))
    return CheckpointJournal(image, tuple(one.ident() for one in alive), suspended=True)
