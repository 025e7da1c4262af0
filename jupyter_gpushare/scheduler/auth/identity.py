"""Identities and tokens.

A token is shown once, at creation; the store has its SHA-256. (A token has 256 random bits, so it
cannot be guessed and a slow hash is not needed.) Scopes: a person acts for themselves, a server for
its users, an agent for its node, an admin may do everything. `permissions` has the details by
route.
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
from typing import Final, Literal, cast

import msgspec

from jupyter_gpushare import messages as m
from jupyter_gpushare.core.model.errors import GpuShareError, InvalidInput, NotAllowed, NotFound
from jupyter_gpushare.core.model.units import read_duration

from ..state.audit import audit
from ..store.store import Store, TokenRow

__all__ = ["Identity", "NotAuthenticated", "TokenService", "admin_token_file", "write_secret"]

Scope = Literal["person", "server", "agent", "admin"]
Source = Literal["token", "hub", "kubernetes", "socket", "process"]
Groups = Callable[[str], tuple[str, ...]]
"""Returns the groups of a user from the configuration."""

PREFIX: Final = "gpushare_"
LONGEST_NAME: Final = 200
MOST_NAMES: Final = 1000
REMEMBERED_MS: Final = 1000
MOST_REMEMBERED: Final = 10_000
"""Valid tokens in memory."""
SHORTEST: Final = 32
"""Characters of a token that an administrator chooses."""


class NotAuthenticated(GpuShareError):
    """Raised when a call has no token or an invalid one. The message does not say which."""

    code, status_hint = "not-authenticated", 401


def _no_groups(user: str) -> tuple[str, ...]:
    del user
    return ()


@dataclass(frozen=True, slots=True)
class Identity:
    """The caller of one request. `users` are the users for whom a server may act (empty: all),
    `source` is how the caller was authenticated.
    """

    user: str
    groups: tuple[str, ...] = ()
    scope: Scope = "person"
    groups_of: Groups = field(default=_no_groups, compare=False, repr=False)
    users: tuple[str, ...] = ()
    source: Source = field(default="token", compare=False)
    bound_to: str = field(default="", compare=False)
    """What the token lives and dies with: the uid of a pod; "": nothing."""

    @classmethod
    def nobody(cls) -> Identity:
        """An identity without permissions."""
        return cls("")

    @property
    def is_admin(self) -> bool:
        return self.scope == "admin"

    @property
    def serves_all_users(self) -> bool:
        """Whether this is a server that may act for every user."""
        return self.scope == "server" and not self.users

    def people(self) -> list[tuple[str, tuple[str, ...]]]:
        """The users, with their groups, whose objects count as this caller's own. A server for all
        users has only its own.
        """
        return [
            (self.user, self.groups),
            *((user, self.groups_of(user)) for user in self.users if self.scope == "server"),
        ]

    def acts_for(self) -> list[str]:
        """The users for whom it may make requests, the default first; `*`: every user."""
        default, _ = self.acting_for(None)
        others = [user for user, _ in self.people() if user != default]
        anyone = ["*"] if self.is_admin or self.serves_all_users else []
        return [default, *others, *anyone] if default else []

    def acting_for(self, user: str | None) -> tuple[str, tuple[str, ...]]:
        """The user (and groups) for whom a request is made; None: the caller, or the only user of a
        server.

        Raises NotAllowed if the caller may not act for this user.
        """
        if user is None:
            return self.people()[-1] if len(self.users) == 1 else (self.user, self.groups)
        for known, groups in self.people():
            if user == known:
                return user, groups
        if not (self.is_admin or self.serves_all_users):
            raise NotAllowed(f"{self.user!r} may not act for {user!r}", field="user")
        return user, self.groups_of(user)

    def may_act_for_node(self, node: str) -> bool:
        """An agent's token has the name of its node, or a pattern such as `gpu-*`."""
        return self.is_admin or (self.scope == "agent" and fnmatchcase(node, self.user))


class TokenService:
    """The tokens in the store. `clock` returns wall-clock ms."""

    def __init__(
        self, store: Store, clock: Callable[[], int], groups_of: Groups = _no_groups
    ) -> None:
        self._store, self._clock, self.groups_of = store, clock, groups_of
        self._read: dict[str, tuple[int, TokenRow]] = {}
        """Recently used tokens by hash, with the time at which they were read."""

    def create(self, request: m.TokenRequest, by: str = "scheduler") -> m.TokenView:
        """Creates a token. Only this answer contains the secret. `by` is the actor for the audit
        log. Raises InvalidInput.
        """
        if not _is_name(request.name):
            raise InvalidInput(
                f"a token needs a name of 1 to {LONGEST_NAME} printable characters: its user,"
                " server or node",
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
        """Adds a token that the administrator chose as an admin token, unless it is known."""
        if len(secret) < SHORTEST:
            raise InvalidInput(
                f"an admin token must have at least {SHORTEST} characters", field="token_file"
            )
        if self._store.token_by_hash(_hash(secret)) is None:
            self._add(
                self._row(secret, "admin", name, expires=None),
                "scheduler",
                f"scope admin, for {name}, chosen by the administrator",
            )

    def list(self) -> m.Tokens:
        """All tokens without their secrets, oldest first."""
        now = self._clock()
        return m.Tokens(tokens=[_view(row, now) for row in self._store.tokens()])

    def revoke(self, id_: str, by: str = "scheduler") -> m.TokenView:
        """Revokes a token; idempotent. Raises NotFound."""
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
        """The caller with this `Authorization` header. Raises NotAuthenticated."""
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
        return Identity(row.name, groups, cast(Scope, row.scope), self.groups_of, users)

    def _row_of(self, digest: str) -> TokenRow | None:
        """The token, cached for a second only, since another process may revoke it."""
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
    """Ensures that the file has a valid admin token, readable by its owner only. An existing valid
    token is kept.
    """
    secret = path.read_text().strip() if path.exists() else ""
    if secret:
        tokens.adopt(secret, user)
        try:
            tokens.authenticate(f"Bearer {secret}")
            return
        except NotAuthenticated:
            # revoked or expired: the owner of this file is the administrator and gets a new one
            pass
    made = tokens.create(m.TokenRequest(scope="admin", name=user))
    assert isinstance(made.token, str)
    write_secret(path, made.token)


def write_secret(path: Path, secret: str) -> None:
    """Writes a file that only its owner can read, atomically."""
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
    """The JSON text for the store. Raises InvalidInput."""
    if given and not is_possible:
        raise InvalidInput(
            f"{what} are allowed only for tokens of {'servers' if what == 'users' else 'persons'}",
            field=what,
        )
    if len(given) > MOST_NAMES or not all(map(_is_name, given)):
        raise InvalidInput(
            f"{what} must be at most {MOST_NAMES} names of 1 to {LONGEST_NAME} printable"
            " characters",
            field=what,
        )
    return json.dumps(list(dict.fromkeys(given))) if given else ""


def _is_name(text: str) -> bool:
    return bool(text.strip()) and len(text) <= LONGEST_NAME and text.isprintable()


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
