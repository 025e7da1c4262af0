"""Bookings for calendar programs, which cannot send a token: who knows a person's secret
address reads that person's bookings, and nothing else.

An address is shown once, when it is made; the store has its SHA-256. (It has 256 random bits, so it
cannot be guessed and a slow hash is not needed.) A person has at most one.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import secrets
from collections.abc import Callable, Iterator
from typing import Final

from jupyter_gpushare import messages as m
from jupyter_gpushare.core.bookings.recurrence import Window
from jupyter_gpushare.core.model.amounts import GPU
from jupyter_gpushare.core.model.errors import Conflict
from jupyter_gpushare.core.model.reason import counted
from jupyter_gpushare.routes import API_ROOT

from ..auth.identity import Identity, NotAuthenticated
from ..state.audit import audit
from ..state.unit_of_work import UnitOfWork
from ..store.store import FeedRow
from .bookings import BookingService
from .calendar_file import BookedEvent, calendar_file

__all__ = ["BookingFeeds"]

DAY_MS: Final = 86_400_000
BEFORE_MS: Final = 31 * DAY_MS
AFTER_MS: Final = 186 * DAY_MS
MOST_EVENTS: Final = 2000
"""The earliest ones; more would delay cycles."""
PATH: Final = f"{API_ROOT}/bookings.ics"


class BookingFeeds:
    """Of one unit of work. `groups_of` returns the groups of a user from the configuration."""

    def __init__(self, unit_of_work: UnitOfWork, bookings: BookingService) -> None:
        self._unit_of_work, self._bookings = unit_of_work, bookings
        self.groups_of: Callable[[str], tuple[str, ...]] = lambda _: ()

    def renew(self, identity: Identity) -> m.BookingFeed:
        """A new address; the one before ends. Raises Conflict."""
        user, groups = identity.acting_for(None)
        if identity.scope == "server" and len(identity.users) != 1:
            raise Conflict("a calendar address is one person's; this server has several users")
        secret, now = secrets.token_urlsafe(32), self._unit_of_work.clock()
        row = FeedRow(user, json.dumps(sorted(groups)), _hash(secret), now)
        with self._unit_of_work.transaction() as write:
            write.booking_feed(row)
            audit(write, now, identity.user, "renew calendar address", f"user {user}")
        return m.BookingFeed(path=f"{PATH}?key={secret}", created=m.stamp(now))

    def revoke(self, identity: Identity) -> m.BookingFeed:
        """Ends the caller's address; idempotent."""
        user, _ = identity.acting_for(None)
        if self._unit_of_work.store.feed_of(user) is not None:
            now = self._unit_of_work.clock()
            with self._unit_of_work.transaction() as write:
                write.booking_feed_revoked(user)
                audit(write, now, identity.user, "revoke calendar address", f"user {user}")
        return m.BookingFeed()

    def read(self, secret: str | None) -> bytes:
        """The bookings of the person with this address. Raises NotAuthenticated."""
        digest = _hash(secret or "")
        row = self._unit_of_work.store.feed_by_hash(digest)
        if row is None or not hmac.compare_digest(row.hash, digest):
            raise NotAuthenticated("this calendar address does not exist, or has been replaced")
        groups = tuple(dict.fromkeys((*json.loads(row.groups), *self.groups_of(row.user))))
        now = self._unit_of_work.clock()
        found = sorted(self._events(Identity(row.user, groups), now), key=_time)
        return calendar_file(found[:MOST_EVENTS], now)

    def _events(self, identity: Identity, now: int) -> Iterator[BookedEvent]:
        period = Window(now - BEFORE_MS, now + AFTER_MS)
        given_back = self._unit_of_work.bookings.given_back
        for record in self._bookings.seen(identity):
            amount = counted(record.gpu / GPU, "GPU")
            event = BookedEvent(
                booking=record.id,
                summary=f"{amount} for {record.project}: {record.name}",
                description=f"Node pool {record.pool}. Booked in {record.times.zone}.",
                window=period,
                is_given_back=False,
            )
            for window in record.times.windows(period):
                is_given_back = (record.id, window.start) in given_back
                yield event._replace(window=window, is_given_back=is_given_back)


def _time(event: BookedEvent) -> tuple[Window, str]:
    return event.window, event.booking


def _hash(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()
