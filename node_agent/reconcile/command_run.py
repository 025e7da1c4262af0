"""One start of a command: its files, its log and its exit status.

The process belongs to the machine, not to the agent: a restarted agent finds it, its log and its
exit status in files.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final

from jupyter_gpushare.core.model.units import memory_text
from jupyter_gpushare.messages import LeaseBody

__all__ = ["SHELL", "USERS_DIR", "CommandRun", "command_dirs", "remove_files"]

USERS_DIR: Final = Path("/run/gpushare")
"""Where commands that run as another user write their exit status: a folder that only root can
create, with one folder for each command.
"""
SHELL: Final = (
    "gpushare_status_file=$1; shift; trap : HUP INT TERM; "
    '"$@"; code=$?; printf %s "$code" > "$gpushare_status_file.new"; '
    'mv "$gpushare_status_file.new" "$gpushare_status_file"; exit "$code"'
)
"""Outlives the agent and writes the exit status; signals are for the command, whose end the shell
waits for.
"""

MAX_ERROR_CHARS: Final = 500
CUT_TEXT: Final = (
    "\n[gpushare: the output is cut off here, at the limit of {} per command. "
    "The command continues. Write longer output to a file.]\n"
)


@dataclass(slots=True)
class CommandRun:
    """Progress of one start of a command."""

    lease: LeaseBody
    folder: Path
    """Of the agent's user: no one else can replace the log in it."""
    status_file: Path
    begun: str = ""
    """Stamp; "": an earlier agent started it."""
    acknowledged: int = 0
    """Bytes of the log that the scheduler has stored."""
    sent_at: int | None = None
    """When the part in flight was sent."""
    kill_at: int | None = None
    """When it will be killed; None: it may run."""
    terminated: bool = False
    """It has been sent SIGTERM."""
    over_at: int | None = None
    pid: int = 0
    """Of its shell, if this agent started it; 0: an earlier agent did."""
    wait_status: int | None = None
    """How its shell ended, as waitpid(2) says."""
    log_end: int | None = None
    """Where its output was cut off."""

    @property
    def log_file(self) -> Path:
        return self.folder / "log"

    @property
    def started_file(self) -> Path:
        return self.folder / "started"

    @property
    def error_file(self) -> Path:
        return self.status_file.with_name("error")

    def exit_code(self) -> int | None:
        """None: it has not ended, or its shell was killed with it."""
        try:
            return int(_read_text(self.status_file, 8))
        except (OSError, ValueError):
            return None

    def error(self) -> str:
        """Why it could not be started; "" when it could. The text comes from the user's process."""
        try:
            text = _read_text(self.error_file, MAX_ERROR_CHARS)
        except OSError:
            return ""
        return "".join(char if char.isprintable() else " " for char in text).strip()

    # ---- output ----------------------------------------------------------------------------------

    def open_log(self) -> BinaryIO:
        """To append to; the command's output."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        return os.fdopen(os.open(self.log_file, flags, 0o600), "wb")

    def log_size(self) -> int:
        """Bytes that will be reported."""
        try:
            size = self.log_file.stat().st_size
        except OSError:
            return 0
        return size if self.log_end is None else min(size, self.log_end)

    def bound_log(self, limit: int) -> None:
        """Cut the output off at `limit` bytes, with a line that says so. The command goes on; what
        it prints later is dropped.
        """
        try:
            size = self.log_file.stat().st_size
            if self.log_end is not None and size > self.log_end:
                os.truncate(self.log_file, self.log_end)
            elif self.log_end is None and size > limit:
                os.truncate(self.log_file, limit)
                with self.open_log() as log:
                    log.write(CUT_TEXT.format(memory_text(limit >> 20)).encode())
                self.log_end = self.log_file.stat().st_size
        except OSError:
            pass  # removed meanwhile

    def read_log(self, most: int) -> bytes:
        """What follows the acknowledged part: whole UTF-8 characters, unless it is no text."""
        most = min(most, self.log_size() - self.acknowledged)
        if most <= 0:
            return b""
        try:
            with self.log_file.open("rb") as file:
                file.seek(self.acknowledged)
                data = file.read(most)
        except OSError:
            return b""
        for cut in range(min(4, len(data))):
            part = data[: len(data) - cut]
            with contextlib.suppress(UnicodeDecodeError):
                part.decode()
                return part
        return data

    def remove_files(self) -> None:
        """The run is over."""
        remove_files(self.folder, self.status_file.parent)


def remove_files(*folders: Path) -> None:
    """Remove folders of a run."""
    for folder in folders:
        shutil.rmtree(folder, ignore_errors=True)


def _read_text(path: Path, most: int) -> str:
    """A file that another user may have replaced by anything: it is not followed, not waited for,
    and not read for long.
    """
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK
    with os.fdopen(os.open(path, flags), encoding="utf-8", errors="replace") as file:
        return file.read(most)


def command_dirs(state_dir: Path, lease_id: str) -> tuple[Path, Path]:
    """The agent's folder of a run, and the folder for the status of another user's command. Ids
    come from other people and are never used as file names.
    """
    name = hashlib.sha256(lease_id.encode()).hexdigest()[:24]
    return state_dir / "batch" / name, USERS_DIR / name
