"""Who sees and cancels bookings, cell by cell of the access table."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from jupyter_gpushare import messages as m
from tests.scheduler.permission_town import OWNERS, PEOPLE, PROJECTS, Town, story, within

pytestmark = pytest.mark.usefixtures("on_both")


def soon() -> str:
    return (datetime.now(UTC) + timedelta(days=30)).strftime("%Y-%m-%d")


@story
async def test_bookings_are_visible_and_cancelled_as_in_the_table(town: Town):
    for caller in PEOPLE:
        for number, (whose, user) in enumerate(OWNERS.items()):
            id_ = f"{caller}-{user}".replace(" ", "-")
            request = m.BookingRequest(
                id=id_, project=PROJECTS[user], gpu=0.01, start=f"{soon()} 1{number}:00", hours=1
            )
            await town.running.of(user).book(request)
            listed = (await town.read(caller, "/api/v1/bookings"))["bookings"]
            is_seen = whose in within("bookings", caller)
            assert (id_ in {row["id"] for row in listed}) is is_seen, (caller, whose)
            answer = await town.ask(caller, "DELETE", f"/api/v1/bookings/{id_}")
            may_cancel = whose in within("cancel_booking", caller)
            expected = 200 if may_cancel else 403 if is_seen else 404
            assert answer.code == expected, (caller, whose)
