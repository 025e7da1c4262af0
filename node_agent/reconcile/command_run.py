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
from typing import Final

from jupyter_gpushare.messages import LeaseBody

__all__ = ["SHELL", "USERS_DIR", "CommandRun", "command_dirs"]

USERS_DIR: Final = Path("/run/gpushare")
"""Where commands that run as another user write their exit status: a folder that only root can
create, with one folder for each command.
"""
SHELL: Final = (
    'trap : HUP INT TERM; "$@"; code=$?; '
    'printf %s "$code" > "$0.new"; mv "$0.new" "$0"; exit "$code"'
)
"""Outlives the agent and writes the exit status; signals are for the command, whose end the shell
waits for.
"""


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

    @property
    def log_file(self) -> Path:
        return self.folder / "log"

    def exit_code(self) -> int | None:
        """None: it has not ended, or its shell was killed with it."""
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK
        try:
            with os.fdopen(os.open(self.status_file, flags)) as file:
                return int(file.read(8))
        except (OSError, ValueError):
            return None

    def log_size(self) -> int:
        """Bytes."""
        try:
            return self.log_file.stat().st_size
        except OSError:
            return 0

    def read_log(self, most: int) -> bytes:
        """What follows the acknowledged part: whole UTF-8 characters, unless it is no text."""
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
        for folder in {self.folder, self.status_file.parent}:
            shutil.rmtree(folder, ignore_errors=True)


def command_dirs(state_dir: Path, lease_id: str) -> tuple[Path, Path]:
    """The agent's folder of a run, and the folder for the status of another user's command. Ids
    come from other people and are never used as file names.
    """
    name = hashlib.sha256(lease_id.encode()).hexdigest()[:24]
    return state_dir / "batch" / name, USERS_DIR / name
