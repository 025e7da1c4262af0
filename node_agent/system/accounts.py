"""Which accounts of the machine are those of people, and which of the system.

useradd(8) gives people ids from UID_MIN of /etc/login.defs, and services (`www-data`, `daemon`)
smaller ones. `nobody` owns what belongs to no user, so it counts as a system account too.
"""

from __future__ import annotations

import contextlib
import pwd
from pathlib import Path
from typing import Final

__all__ = ["is_system_account"]

LOGIN_DEFS: Final = Path("/etc/login.defs")
OVERFLOW_UID: Final = Path("/proc/sys/fs/overflowuid")
UID_MIN: Final = 1000
"""Where the file does not say: the default of useradd(8)."""


def is_system_account(account: pwd.struct_passwd, login_defs: Path = LOGIN_DEFS) -> bool:
    """Whether this is not the account of a person."""
    return account.pw_uid < _first_uid(login_defs) or account.pw_uid == _overflow_uid()


def _first_uid(login_defs: Path) -> int:
    with contextlib.suppress(OSError):
        for line in login_defs.read_text(errors="replace").splitlines():
            key, _, value = line.partition("#")[0].strip().replace("\t", " ").partition(" ")
            if key == "UID_MIN":
                with contextlib.suppress(ValueError):
                    return int(value.strip(), 0)  # as in C: 0x3e8 too
    return UID_MIN


def _overflow_uid() -> int:
    with contextlib.suppress(OSError, ValueError):
        return int(OVERFLOW_UID.read_text())
    return 65534
