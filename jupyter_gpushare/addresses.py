"""Where this user's scheduler and node agent are, as far as this machine knows. Reads files and the
environment only.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

__all__ = ["DEMO", "SCHEDULER_LOCK", "SchedulerNote", "agent_socket", "home", "scheduler_note"]

DEMO: Final = "demo"
"""Link to the state directory of the running demo."""
SCHEDULER_LOCK: Final = "scheduler.lock"
"""In a state directory: locked by the scheduler that runs in it."""
SHARED_SOCKET: Final = Path("/run/gpushare/agent.sock")
"""Of an agent that serves all users of the machine."""


@dataclass(frozen=True, slots=True)
class SchedulerNote:
    """The address that a scheduler of this user left in its state directory."""

    folder: Path
    url: str
    token_file: str


def home(environ: Mapping[str, str] = os.environ) -> Path:
    """The directory with the addresses of this user's schedulers."""
    from jupyter_core.paths import jupyter_data_dir

    return Path(environ.get("GPUSHARE_STATE") or Path(jupyter_data_dir()) / "gpushare")


def scheduler_note(environ: Mapping[str, str] = os.environ) -> SchedulerNote | None:
    """The address and token file of this user's scheduler, else of the demo. One that runs comes
    first; else the address of one that has ended. None: no scheduler ran here.
    """
    folder = home(environ)
    notes = [note for place in (folder, folder / DEMO) if (note := _note_in(place)) is not None]
    return next((note for note in notes if _is_running(note.folder)), notes[0] if notes else None)


def _note_in(place: Path) -> SchedulerNote | None:
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        note = json.loads((place / "scheduler.json").read_text())
        return SchedulerNote(place, str(note["url"]), str(note["token_file"]))
    return None


def _is_running(place: Path) -> bool:
    """Whether a scheduler has the lock of this state directory."""
    try:
        with (place / SCHEDULER_LOCK).open("rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


def agent_socket(folder: Path | None, environ: Mapping[str, str] = os.environ) -> Path | None:
    """The socket of this machine's node agent, if there is one. `folder`: the state directory of
    this user's scheduler.
    """
    given = environ.get("GPUSHARE_AGENT_SOCKET")
    if given:
        return Path(given)
    own = [(folder or home(environ)) / "agent.sock", SHARED_SOCKET]
    return next((path for path in own if path.exists()), None)
