"""Authentication on a unix socket by the credentials of the peer. Callers are their unix user and
need no token.
"""

from __future__ import annotations

import grp
import os
import pwd
import socket
import struct
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Final

from .identity import Groups, Identity

__all__ = ["UnixPeers", "uid_of_peer"]

REMEMBERED_S: Final = 60.0
"""Group lookups may be slow (LDAP), and they block the event loop."""
MOST_USERS: Final = 10_000


def uid_of_peer(peer: socket.socket) -> int | None:
    """The uid of the peer; None: not a unix socket."""
    if peer.family != socket.AF_UNIX:
        return None
    _, uid, _ = struct.unpack(
        "3i", peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    )
    return int(uid)


class UnixPeers:
    """Unix users as callers.

    Args:
        admins: User names and `group:NAME`. Root and the user of this service are always admins,
            since they can read the store.
        groups_of: Groups in addition to those of the operating system.
        only_owner: Accept only root and the user of this service.
    """

    def __init__(
        self,
        admins: Sequence[str] = (),
        groups_of: Groups = lambda _: (),
        *,
        only_owner: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._admins, self._groups_of, self._only_owner, self._clock = (
            frozenset(admins),
            groups_of,
            only_owner,
            clock,
        )
        self._known: OrderedDict[int, tuple[float, Identity]] = OrderedDict()

    def identity(self, uid: int) -> Identity | None:
        """The identity of a uid; a user without a name is called `uid<number>`. None: refused."""
        if self._only_owner and uid not in (0, os.getuid()):
            return None
        known = self._known.get(uid)
        if known is not None and self._clock() < known[0]:
            return known[1]
        found = self._find(uid)
        self._known[uid] = self._clock() + REMEMBERED_S, found
        self._known.move_to_end(uid)
        if len(self._known) > MOST_USERS:
            self._known.popitem(last=False)
        return found

    def _find(self, uid: int) -> Identity:
        try:
            entry: pwd.struct_passwd | None = pwd.getpwuid(uid)
        except KeyError:
            entry = None
        name = f"uid{uid}" if entry is None else entry.pw_name
        groups = tuple(
            dict.fromkeys((*(() if entry is None else _groups(entry)), *self._groups_of(name)))
        )
        listed = name in self._admins or any(f"group:{group}" in self._admins for group in groups)
        is_admin = uid in (0, os.getuid()) or listed
        return Identity(
            name, groups, "admin" if is_admin else "person", self._groups_of, source="socket"
        )


def _groups(entry: pwd.struct_passwd) -> tuple[str, ...]:
    names = []
    for gid in os.getgrouplist(entry.pw_name, entry.pw_gid):
        try:
            names.append(grp.getgrgid(gid).gr_name)
        except KeyError:
            continue  # a policy cannot name a group without a name
    return tuple(names)
