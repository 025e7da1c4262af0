"""Who is asking, and what they may do: identities, and the tokens that stand for them.

A token is shown once, when it is made; what is kept is its SHA-256 (a token is 256 random bits:
there is nothing to guess, so a slow hash would only slow the service down). Scopes: a person asks
for themselves; a server asks for its users; an agent speaks for a node and does nothing else; an
admin may do everything. What that means route by route is in `access`.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import secrets
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final, Literal

import msgspec

from jupyter_gpushare import messages as m
from jupyter_gpushare.core.model.errors import GpuShareError, InvalidInput, NotAllowed, NotFound
from jupyter_gpushare.core.model.units import read_duration

from ..state.audit import audit
from ..store.store import Store, TokenRow

__all__ = ["Identity", "NotAuthenticated", "TokenService", "admin_token_file", "write_secret"]

Scope = Literal["person", "server", "agent", "admin"]
Source = Literal["token", "hub", "socket", "process"]
Groups = Callable[[str], tuple[str, ...]]
"""The groups of a user, as the administrator's configuration knows them."""

PREFIX: Final = "gpushare_"
LONGEST_NAME: Final = 200
MOST_NAMES: Final = 1000
REMEMBERED_MS: Final = 1000
MOST_REMEMBERED: Final = 10_000
"""Tokens in memory; strangers' are none of them."""
SHORTEST: Final = 32
"""Characters of a token that an administrator brings along."""


class NotAuthenticated(GpuShareError):
    """Raised when a call carries no token, or one that is not valid (any more). Which of these,
    nobody is told.
    """

    code, status_hint = "not-authenticated", 401


def _no_groups(user: str) -> tuple[str, ...]:
    del user
    return ()


@dataclass(frozen=True, slots=True)
class Identity:
    """The caller of one request. `users`: on whose behalf a server may ask, empty: everybody's.
    `source`: how this is known.
    """

    user: str
    groups: tuple[str, ...] = ()
    scope: Scope = "person"
    groups_of: Groups = field(default=_no_groups, compare=False, repr=False)
    users: tuple[str, ...] = ()
    source: Source = field(default="token", compare=False)

    @classmethod
    def nobody(cls) -> Identity:
        """For what is said to nobody in particular."""
        return cls("")

    @property
    def is_admin(self) -> bool:
        return self.scope == "admin"

    @property
    def is_everybodys(self) -> bool:
        """Whether this is a server that asks for whoever is its user."""
        return self.scope == "server" and not self.users

    def people(self) -> list[tuple[str, tuple[str, ...]]]:
        """Users, with their groups, whose own things are this caller's own; of everybody's server
        only itself.
        """
        return [
            (self.user, self.groups),
            *((user, self.groups_of(user)) for user in self.users if self.scope == "server"),
        ]

    def acting_for(self, user: str | None) -> tuple[str, tuple[str, ...]]:
        """The user (and their groups) on whose behalf a request is: unless said, the caller, or the
        one user of a server.

        Raises NotAllowed when the caller may not speak for them.
        """
        if user is None:
            return self.people()[-1] if len(self.users) == 1 else (self.user, self.groups)
        for known, groups in self.people():
            if user == known:
                return user, groups
        if not (self.is_admin or self.is_everybodys):
            raise NotAllowed(
                f"you are {self.user!r} and cannot ask on behalf of {user!r}", field="user"
            )
        return user, self.groups_of(user)

    def may_speak_for(self, node: str) -> bool:
        """An agent's token is named for its node; a pattern such as `gpu-*` stands for several."""
        return self.is_admin or (self.scope == "agent" and fnmatchcase(node, self.user))


class TokenService:
    """The tokens in the store. `clock` gives wall-clock ms."""

    def __init__(
        self, store: Store, clock: Callable[[], int], groups_of: Groups = _no_groups
    ) -> None:
        self._store, self._clock, self.groups_of = store, clock, groups_of
        self._read: dict[str, tuple[int, TokenRow]] = {}
        """By hash: tokens that were used lately, with when they were read."""

    def create(self, request: m.TokenRequest, by: str = "scheduler") -> m.TokenView:
        """A new token; the answer is the only place where its secret ever shows. `by`: who wants
        it, for the audit log. Raises InvalidInput.
        """
        if not request.name.strip() or len(request.name) > LONGEST_NAME:
            raise InvalidInput(
                f"a token needs a name of 1 to {LONGEST_NAME} characters: the user, server or node that it stands for",
                field="name",
            )
        secret = PREFIX + secrets.token_urlsafe(32)
        row = replace(
            self._row(
                secret, request.scope, request.name.strip(), expires=_lifetime(request.expires)
            ),
            users=_names(request.users, "users", request.scope == "server"),
            groups=_names(request.groups, "groups", request.scope == "person"),
        )
        made = _view(row, self._clock(), secret)
        self._add(row, by, f"scope {row.scope}, for {row.name}, until {made.expires or 'revoked'}")
        return made

    def _add(self, row: TokenRow, by: str, detail: str) -> None:
        with self._store.transaction() as write:
            write.token(row)
            audit(write, self._clock(), by, "create token", f"token {row.id}", detail)

    def adopt(self, secret: str, name: str) -> None:
        """Takes a token that the administrator brought along as an admin's; one that is known
        already stays what it is.
        """
        if len(secret) < SHORTEST:
            raise InvalidInput(
                f"an admin token must have at least {SHORTEST} characters", field="token_file"
            )
        if self._store.token_by_hash(_hash(secret)) is None:
            self._add(
                self._row(secret, "admin", name, expires=None),
                "scheduler",
                f"scope admin, for {name}, brought along",
            )

    def list(self) -> m.Tokens:
        """All of them, oldest first; secrets are not known here."""
        now = self._clock()
        return m.Tokens(tokens=[_view(row, now) for row in self._store.tokens()])

    def revoke(self, id_: str, by: str = "scheduler") -> m.TokenView:
        """From now on it opens nothing. Raises NotFound. A second time changes nothing."""
        row = next((row for row in self._store.tokens() if row.id == id_), None)
        if row is None:
            raise NotFound(f"there is no token {id_!r}", field="id")
        if row.revoked_ms is None:
            with self._store.transaction() as write:
                write.token_revoked(id_, self._clock())
                audit(
                    write,
                    self._clock(),
                    by,
                    "revoke token",
                    f"token {id_}",
                    f"scope {row.scope}, of {row.name}",
                )
        self._read.clear()
        return next(_view(row, self._clock()) for row in self._store.tokens() if row.id == id_)

    def authenticate(self, header: str | None) -> Identity:
        """The caller that an `Authorization` header stands for. Raises NotKnown."""
        kind, _, secret = (header or "").strip().partition(" ")
        digest = _hash(secret.strip())
        row = self._row_of(digest) if kind.lower() in ("bearer", "token") else None
        if (
            row is None
            or not hmac.compare_digest(row.hash, digest)
            or not _is_good(row, self._clock())
        ):
            raise NotAuthenticated("a valid token is needed: `Authorization: Bearer <token>`")
        groups = tuple(dict.fromkeys((*json.loads(row.groups or "[]"), *self.groups_of(row.name))))
        users = tuple(json.loads(row.users or "[]"))
        return Identity(row.name, groups, row.scope, self.groups_of, users)  # type: ignore[arg-type]  # only scopes are stored

    def _row_of(self, digest: str) -> TokenRow | None:
        """From memory for a moment: a server asks many times a second. Another process may have
        revoked it, so it is no long moment.
        """
        now = self._clock()
        at, known = self._read.get(digest, (0, None))
        if known is not None and 0 <= now - at < REMEMBERED_MS:
            return known
        row = self._store.token_by_hash(digest)
        if len(self._read) >= MOST_REMEMBERED:
            self._read.clear()
        if row is not None:
            self._read[digest] = now, row
        else:
            self._read.pop(digest, None)
        return row

    def _row(self, secret: str, scope: Scope, name: str, *, expires: int | None) -> TokenRow:
        now = self._clock()
        return TokenRow(
            secrets.token_hex(6),
            scope,
            name,
            _hash(secret),
            now,
            None if expires is None else now + expires,
        )


def admin_token_file(tokens: TokenService, path: Path, user: str) -> None:
    """Makes sure that this file holds a valid admin token. Only its owner can read it; an existing
    one is kept if it still is good.
    """
    secret = path.read_text().strip() if path.exists() else ""
    if secret:
        tokens.adopt(secret, user)
        try:
            tokens.authenticate(f"Bearer {secret}")
            return
        except NotAuthenticated:
            # revoked or expired: whoever can write here is the administrator, who gets a new one
            pass
    made = tokens.create(m.TokenRequest(scope="admin", name=user))
    assert isinstance(made.token, str)
    write_secret(path, made.token)


def write_secret(path: Path, secret: str) -> None:
    """Never readable by others, not even for a moment; a reader sees the old file or the whole new
    one.
    """
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    with os.fdopen(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        file.write(secret + "\n")
    beside.replace(path)


def _lifetime(expires: str | None) -> int | None:
    if expires is None:
        return None
    try:
        lifetime = read_duration(expires, what="expires")
    except InvalidInput as error:
        raise InvalidInput(error.message, field="expires") from None
    if lifetime <= 0:
        raise InvalidInput(f"expires must be a time such as 30d, got {expires!r}", field="expires")
    return lifetime


def _names(given: list[str], what: str, is_possible: bool) -> str:
    """As they are stored. Raises InvalidInput."""
    if given and not is_possible:
        raise InvalidInput(
            f"{what} are said of a {'server' if what == 'users' else 'person'}'s token only",
            field=what,
        )
    if len(given) > MOST_NAMES or any(
        not name.strip() or len(name) > LONGEST_NAME for name in given
    ):
        raise InvalidInput(
            f"{what} must be at most {MOST_NAMES} names of 1 to {LONGEST_NAME} characters",
            field=what,
        )
    return json.dumps(list(dict.fromkeys(given))) if given else ""


def _is_good(row: TokenRow, now: int) -> bool:
    return row.revoked_ms is None and (row.expires_ms is None or now < row.expires_ms)


def _view(row: TokenRow, now: int, secret: str | None = None) -> m.TokenView:
    expires = None if row.expires_ms is None else m.stamp(row.expires_ms)
    view = m.TokenView(
        id=row.id,
        scope=row.scope,
        name=row.name,
        created=m.stamp(row.created_ms),
        expires=expires,
        revoked=not _is_good(row, now),
        state="good" if _is_good(row, now) else "expired" if row.revoked_ms is None else "revoked",
        users=json.loads(row.users or "[]"),
        groups=json.loads(row.groups or "[]"),
    )
    return view if secret is None else msgspec.structs.replace(view, token=secret)


def _hash(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()
