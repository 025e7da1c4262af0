"""The resource limits that a login would give a user: those of the machine's first process, changed
by limits.conf(5), in the way of pam_limits(8).

An agent that runs as a service has other limits than a person; commands of a person must not get
the agent's.
"""

from __future__ import annotations

import grp
import pwd
import resource
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

__all__ = ["Limits", "user_limits"]

Limits = dict[str, tuple[int, int]]
"""Names of the `resource` module to soft and hard limits."""

UNLIMITED: Final = resource.RLIM_INFINITY
ITEMS: Final = {
    "core": ("RLIMIT_CORE", 1024),
    "cpu": ("RLIMIT_CPU", 60),
    "data": ("RLIMIT_DATA", 1024),
    "fsize": ("RLIMIT_FSIZE", 1024),
    "memlock": ("RLIMIT_MEMLOCK", 1024),
    "msgqueue": ("RLIMIT_MSGQUEUE", 1),
    "nofile": ("RLIMIT_NOFILE", 1),
    "nproc": ("RLIMIT_NPROC", 1),
    "rss": ("RLIMIT_RSS", 1024),
    "rtprio": ("RLIMIT_RTPRIO", 1),
    "sigpending": ("RLIMIT_SIGPENDING", 1),
    "stack": ("RLIMIT_STACK", 1024),
    "as": ("RLIMIT_AS", 1024),
}
"""Item of limits.conf: name in Python, and the unit of the file's numbers."""
PROC_NAMES: Final = {
    "Max core file size": "RLIMIT_CORE",
    "Max cpu time": "RLIMIT_CPU",
    "Max data size": "RLIMIT_DATA",
    "Max file size": "RLIMIT_FSIZE",
    "Max locked memory": "RLIMIT_MEMLOCK",
    "Max msgqueue size": "RLIMIT_MSGQUEUE",
    "Max open files": "RLIMIT_NOFILE",
    "Max processes": "RLIMIT_NPROC",
    "Max resident set": "RLIMIT_RSS",
    "Max realtime priority": "RLIMIT_RTPRIO",
    "Max pending signals": "RLIMIT_SIGPENDING",
    "Max stack size": "RLIMIT_STACK",
    "Max address space": "RLIMIT_AS",
}
NAME_WIDTH: Final = 26
"""Column in which the numbers of /proc/PID/limits begin."""


class _Rule(NamedTuple):
    """One line of limits.conf."""

    rank: int
    """How specific its domain is: a rule for the user ranks above one for a group, and that above
    one for everyone.
    """
    kind: str
    name: str
    value: int


def user_limits(
    account: pwd.struct_passwd,
    groups: Iterable[int],
    *,
    etc: Path = Path("/etc/security"),
    init: Path = Path("/proc/1/limits"),
) -> Limits:
    """The limits of this user with these groups."""
    limits = dict(_init_limits(init))
    names = {_group_name(gid) for gid in groups}
    rules = [rule for line in _lines(etc) if (rule := _rule(line, account, names)) is not None]
    for rule in sorted(rules, key=lambda rule: rule.rank):  # stable: later lines win
        soft, hard = limits.get(rule.name, (UNLIMITED, UNLIMITED))
        if rule.kind in ("soft", "-"):
            soft = rule.value
        if rule.kind in ("hard", "-"):
            hard = rule.value
        limits[rule.name] = (_lower(soft, hard), hard)
    return limits


def _lower(soft: int, hard: int) -> int:
    if hard == UNLIMITED:
        return soft
    return hard if soft == UNLIMITED else min(soft, hard)


def _init_limits(path: Path) -> Iterator[tuple[str, tuple[int, int]]]:
    try:
        lines = path.read_text().splitlines()
    except OSError:
        return
    for line in lines:
        name = PROC_NAMES.get(line[:NAME_WIDTH].strip())
        numbers = line[NAME_WIDTH:].split()[:2]
        if name is not None and len(numbers) == 2:
            soft, hard = (UNLIMITED if text == "unlimited" else int(text) for text in numbers)
            yield name, (soft, hard)


def _lines(etc: Path) -> Iterator[list[str]]:
    """Fields of all rules, in the order in which pam_limits reads the files."""
    for path in [etc / "limits.conf", *sorted(etc.glob("limits.d/*.conf"))]:
        try:
            text = path.read_text(errors="replace")
        except OSError:
            continue
        for line in text.splitlines():
            fields = line.partition("#")[0].split()
            if len(fields) == 4:
                yield fields


def _rule(fields: list[str], account: pwd.struct_passwd, groups: set[str]) -> _Rule | None:
    domain, kind, item, text = fields
    rank = _rank(domain, account, groups)
    if rank is None or item not in ITEMS or kind not in ("soft", "hard", "-"):
        return None
    name, unit = ITEMS[item]
    if text in ("unlimited", "infinity", "-1"):
        return _Rule(rank, kind, name, UNLIMITED)
    return _Rule(rank, kind, name, int(text) * unit) if text.isdigit() else None


def _rank(domain: str, account: pwd.struct_passwd, groups: set[str]) -> int | None:
    """None: the rule is for others."""
    if domain == "*":
        return 0
    if domain.startswith("@"):
        return 1 if domain[1:] in groups else None
    return 2 if domain in (account.pw_name, str(account.pw_uid)) else None


def _group_name(gid: int) -> str:
    try:
        return grp.getgrgid(gid).gr_name
    except KeyError:
        return str(gid)
