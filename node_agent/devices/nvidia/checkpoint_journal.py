"""Records which GPU memory is in host memory, and which copies are in progress, in a small file
that is written before the driver is called.

The driver knows the state of each process, but lists no saved process: without this record, a
restarted agent would not know which processes to examine. The file is replaced atomically but not
synced, like the agent's journal: when the machine fails, the processes are lost too.
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

__all__ = ["CheckpointJournal", "JournalEntry", "SavedKernel", "SavedProcess"]

log = logging.getLogger("gpushare.agent")


class SavedProcess(msgspec.Struct, frozen=True):
    """One process, and the memory that it held on each GPU (index -> MiB) before it was saved: an
    upper bound of its image.
    """

    pid: int
    start: int
    held: dict[int, int]

    def process(self) -> ProcessId:
        """Its pid and start time."""
        return ProcessId(self.pid, self.start)

    def mib(self) -> int:
        """On all GPUs."""
        return sum(self.held.values())


class JournalEntry(msgspec.Struct):
    """One kernel: its GPU per ordinal, its saved processes, and whether their states must be
    checked.
    """

    gpus: tuple[int, ...] = msgspec.field(default=(), name="where")
    saved: tuple[SavedProcess, ...] = ()
    uncertain: bool = msgspec.field(default=True, name="doubtful")


class _CheckpointFile(msgspec.Struct):
    kernels: dict[str, JournalEntry] = msgspec.field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SavedKernel:
    """Saved memory of one kernel: MiB per device ordinal, and its processes. `half_done`: the
    states of its processes must be checked.
    """

    image: tuple[int, ...] = ()
    processes: tuple[ProcessId, ...] = ()
    suspended: bool = False
    half_done: bool = False


@dataclass(slots=True)
class CheckpointJournal:
    """The file and its content. Thread-safe.

    An entry is `uncertain` from before the first call until the states of the processes are known
    to match it; entries read at the start are uncertain.
    """

    path: Path
    _entries: dict[str, JournalEntry] = field(default_factory=dict)
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
                "%s cannot be read; saved kernels are found by the states of their processes: %s",
                self.path,
                error,
            )
        for entry in self._entries.values():
            entry.uncertain = True

    def begin(
        self, kernel_id: str, gpus: tuple[int, ...] = (), saved: tuple[SavedProcess, ...] = ()
    ) -> JournalEntry | None:
        """Record that processes of this kernel are about to change, and keep those saved before.
        Returns the previous entry.
        """
        with self._lock:
            before = self._entries.get(kernel_id)
            old = before or JournalEntry()
            known = {one.process(): one for one in (*old.saved, *saved)}
            self._entries[kernel_id] = JournalEntry(old.gpus or gpus, tuple(known.values()))
            self._write()
        return before

    def revert(self, kernel_id: str, before: JournalEntry | None) -> None:
        """Nothing has changed: restore the entry that `begin` returned."""
        with self._lock:
            self._entries.pop(kernel_id, None)
            if before is not None:
                self._entries[kernel_id] = before
            self._write()

    def commit(self, kernel_id: str, processes: set[ProcessId]) -> None:
        """Record that exactly these processes are saved; without any, the entry is removed."""
        with self._lock:
            entry = self._entries.pop(kernel_id, JournalEntry())
            known = {one.process(): one for one in entry.saved}
            saved = tuple(
                known.get(process, SavedProcess(process.pid, process.start, {}))
                for process in sorted(processes, key=lambda process: process.pid)
            )
            if saved:
                gpus = entry.gpus or (0,)
                self._entries[kernel_id] = JournalEntry(gpus, saved, uncertain=False)
            self._write()

    def entry(self, kernel_id: str) -> tuple[tuple[int, ...], tuple[SavedProcess, ...]]:
        """(GPU per ordinal, living processes) as recorded."""
        with self._lock:
            entry = self._entries.get(kernel_id, JournalEntry())
            return entry.gpus, tuple(one for one in entry.saved if one.process().is_alive())

    def overview(self, in_progress: set[str]) -> Mapping[str, SavedKernel]:
        """All kernels with an entry. Kernels with a copy in progress are not `half_done`; entries
        of kernels that ended are removed.
        """
        with self._lock:
            for name, entry in list(self._entries.items()):
                alive = any(saved.process().is_alive() for saved in entry.saved)
                if entry.saved and not alive and name not in in_progress:
                    del self._entries[name]
            return {
                name: _summary(entry, name in in_progress) for name, entry in self._entries.items()
            }

    def _write(self) -> None:
        fresh = self.path.with_suffix(".new")
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
        try:
            with os.fdopen(os.open(fresh, flags, 0o600), "wb") as file:
                file.write(msgspec.json.encode(_CheckpointFile(self._entries)))
            fresh.replace(self.path)
        # A full disk: a restarted agent finds its kernels by the states of their processes.
        except OSError as error:
            log.warning("%s cannot be written: %s", self.path, error)


def _summary(entry: JournalEntry, in_progress: bool) -> SavedKernel:
    if entry.uncertain:
        return SavedKernel(half_done=not in_progress)
    alive = [saved for saved in entry.saved if saved.process().is_alive()]
    others = {gpu for saved in alive for gpu in saved.held} - set(entry.gpus)
    gpus = (*entry.gpus, *sorted(others))
    image = tuple(sum(saved.held.get(gpu, 0) for saved in alive) for gpu in gpus)
    return SavedKernel(image, tuple(saved.process() for saved in alive), suspended=True)
