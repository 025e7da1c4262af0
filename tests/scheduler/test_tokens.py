"""Tokens: shown once, kept as hashes, over when they are over; and the file with the admin's."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from jupyter_gpushare import messages as m
from jupyter_gpushare.core.model.errors import InvalidInput, NotAllowed, NotFound
from jupyter_gpushare.scheduler.auth.identity import (
    Identity,
    NotAuthenticated,
    TokenService,
    admin_token_file,
)
from jupyter_gpushare.scheduler.store.store import Store
from tests.scheduler.databases import Database

DAY = 24 * 3600 * 1000


class Clock:
    def __init__(self) -> None:
        self.time = 1_000_000

    def __call__(self) -> int:
        return self.time


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def store(database: Database):
    store = Store(database.url)
    yield store
    store.close()


@pytest.fixture
def tokens(store: Store, clock: Clock) -> TokenService:
    return TokenService(store, clock, lambda user: (f"friends of {user}",))


def made(tokens: TokenService, scope: str = "person", **more: object) -> m.TokenView:
    return tokens.create(m.TokenRequest(scope=scope, name="alice", **more))


@pytest.mark.parametrize("form", ["Bearer {}", "bearer {}", "token {}", "  Bearer   {}  "])
def test_a_token_says_who_one_is(tokens: TokenService, form: str):
    assert tokens.authenticate(form.format(made(tokens, "server").token)) == Identity(
        "alice", ("friends of alice",), "server"
    )


@pytest.mark.parametrize(
    "header", [None, "", "Bearer", "Bearer ", "Basic {}", "{}", "Bearer {}x", "Bearer x{}"]
)
def test_anything_else_says_nothing(tokens: TokenService, header: str | None):
    secret = made(tokens).token
    with pytest.raises(NotAuthenticated):
        tokens.authenticate(header and header.format(secret))


def test_secrets_are_nowhere_on_disk(tokens: TokenService, store: Store, tmp_path: Path):
    secret = str(made(tokens).token)
    store.close()
    for file in tmp_path.iterdir():
        assert secret.encode() not in file.read_bytes()
        assert secret.removeprefix("gpushare_").encode() not in file.read_bytes()


def test_a_token_ends_when_its_time_is_over(tokens: TokenService, clock: Clock):
    secret = made(tokens, expires="30d").token
    clock.time += 30 * DAY - 1
    tokens.authenticate(f"Bearer {secret}")
    clock.time += 1
    with pytest.raises(NotAuthenticated):
        tokens.authenticate(f"Bearer {secret}")
    (listed,) = tokens.list().tokens
    assert (listed.revoked, listed.state) == (True, "expired"), (
        "it opens nothing any more, and nobody revoked it"
    )


@pytest.mark.parametrize("expires", ["0s", "-1d", "soon", "nan"])
def test_a_lifetime_must_be_one(tokens: TokenService, expires: str):
    with pytest.raises(InvalidInput):
        made(tokens, expires=expires)
    assert not tokens.list().tokens


def test_revoking_is_for_good_and_may_be_said_twice(tokens: TokenService):
    one, other = made(tokens), made(tokens)
    assert [row.state for row in tokens.list().tokens] == ["good", "good"]
    for _ in range(2):
        assert (tokens.revoke(one.id).revoked, tokens.revoke(one.id).state) == (True, "revoked")
    with pytest.raises(NotAuthenticated):
        tokens.authenticate(f"Bearer {one.token}")
    tokens.authenticate(f"Bearer {other.token}")
    with pytest.raises(NotFound):
        tokens.revoke("none")


def test_what_another_process_revoked_is_over_after_a_moment(
    tokens: TokenService, store: Store, clock: Clock
):
    secret = made(tokens).token
    tokens.authenticate(f"Bearer {secret}")
    other = TokenService(store, clock)
    other.revoke(other.list().tokens[0].id)
    clock.time += 1000
    with pytest.raises(NotAuthenticated):
        tokens.authenticate(f"Bearer {secret}")


def test_a_token_that_is_used_often_is_not_read_each_time(
    tokens: TokenService, store: Store, clock: Clock
):
    secret = made(tokens, expires="1h").token
    tokens.authenticate(f"Bearer {secret}")
    store.close()
    store.token_by_hash = None  # queries of the store fail now
    for _ in range(9):
        clock.time += 100
        tokens.authenticate(f"Bearer {secret}")


def test_the_admins_file_is_made_once_and_is_the_owners_alone(tokens: TokenService, tmp_path: Path):
    file = tmp_path / "admin.token"
    admin_token_file(tokens, file, "root")
    first = file.read_text()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert tokens.authenticate(f"Bearer {first.strip()}").is_admin
    admin_token_file(tokens, file, "root")
    assert file.read_text() == first
    assert len(tokens.list().tokens) == 1


def test_an_admins_token_may_be_brought_along_and_a_revoked_one_is_replaced(
    tokens: TokenService, tmp_path: Path
):
    file = tmp_path / "admin.token"
    file.write_text("s" * 40 + "\n")
    admin_token_file(tokens, file, "root")
    assert tokens.authenticate("Bearer " + "s" * 40).is_admin
    tokens.revoke(tokens.list().tokens[0].id)
    admin_token_file(tokens, file, "root")
    assert file.read_text().strip() != "s" * 40
    assert tokens.authenticate(f"Bearer {file.read_text().strip()}").is_admin


def test_a_short_admins_token_is_refused(tokens: TokenService, tmp_path: Path):
    (tmp_path / "admin.token").write_text("secret")
    with pytest.raises(InvalidInput, match="32"):
        admin_token_file(tokens, tmp_path / "admin.token", "root")


def test_who_may_speak_for_others():
    groups = {"bob": ("night",)}
    for scope in ("server", "admin"):
        assert Identity("hub", scope=scope, groups_of=lambda user: groups[user]).acting_for(
            "bob"
        ) == ("bob", ("night",))
    alice = Identity("alice", ("day",))
    assert alice.acting_for(None) == alice.acting_for("alice") == ("alice", ("day",))
    with pytest.raises(NotAllowed):
        alice.acting_for("bob")


def test_a_server_of_some_users_asks_for_them_alone():
    groups = {"bob": ("night",), "carol": ()}
    one = Identity("box", scope="server", users=("bob",), groups_of=groups.__getitem__)
    assert one.acting_for(None) == one.acting_for("bob") == ("bob", ("night",))
    two = Identity("box", scope="server", users=("bob", "carol"), groups_of=groups.__getitem__)
    assert two.acting_for(None) == ("box", ())
    for server in (one, two):
        with pytest.raises(NotAllowed) as refused:
            server.acting_for("dave")
        assert refused.value.field == "user"


def test_a_token_carries_its_users_or_groups(tokens: TokenService):
    server, person = (
        made(tokens, "server", users=["bob", "carol", "bob"]),
        made(tokens, groups=["night"]),
    )
    assert (server.users, person.groups) == (["bob", "carol"], ["night"])
    assert tokens.authenticate(f"Bearer {server.token}").users == ("bob", "carol")
    assert tokens.authenticate(f"Bearer {person.token}").groups == ("night", "friends of alice")
    assert {t.id: (t.users, t.groups) for t in tokens.list().tokens} == {
        server.id: (["bob", "carol"], []),
        person.id: ([], ["night"]),
    }


@pytest.mark.parametrize(
    ("scope", "more"),
    [
        ("person", {"users": ["bob"]}),
        ("server", {"groups": ["night"]}),
        ("agent", {"groups": ["x"]}),
        ("server", {"users": [" "]}),
        ("server", {"users": ["x" * 300]}),
        ("person", {"groups": [f"g{i}" for i in range(2000)]}),
    ],
)
def test_what_a_token_carries_must_make_sense(tokens: TokenService, scope, more):
    with pytest.raises(InvalidInput) as refused:
        made(tokens, scope, **more)
    assert refused.value.field in more
    assert not tokens.list().tokens
