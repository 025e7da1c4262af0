"""Bookings in calendar programs: a secret address, and the times in the file."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from icalendar import Calendar, Component

from jupyter_gpushare import messages as m
from jupyter_gpushare.core.bookings.recurrence import BookedTimes, Repetition, Window
from jupyter_gpushare.core.model.errors import Conflict
from jupyter_gpushare.scheduler.auth.identity import Identity, NotAuthenticated
from jupyter_gpushare.scheduler.policy.policy_file import parse_policy
from jupyter_gpushare.scheduler.service.calendar_file import BookedEvent, calendar_file
from jupyter_gpushare.scheduler.service.service import SchedulerService
from jupyter_gpushare.scheduler.store.store import Store
from tests.scheduler.running_server import open_server
from tests.scheduler.scheduler_harness import SchedulerHarness
from tests.scheduler.test_cli_commands import shell

POLICY = """
node_pools: [{name: default, bookable: {gpu: 2}}]
projects:
  - {name: course, managers: [teacher], members: [ada, "group:night"]}
  - {name: vision, members: [grace], booking: {}}
"""
TEACHER, ADA, GRACE = (Identity(name, (), "person") for name in ("teacher", "ada", "grace"))
HOUR = 3_600_000
ZONES = (
    "Europe/Berlin",
    "America/New_York",
    "Australia/Lord_Howe",
    "Asia/Kathmandu",
    "Africa/Casablanca",
    "UTC",
)


def at(text: str) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp() * 1000)


def events(file: bytes) -> list[Component]:
    return Calendar.from_ical(file).walk("VEVENT")


def ms(moment: datetime) -> int:
    return round(moment.timestamp() * 1000)


# -- the file


@pytest.mark.parametrize("name", ZONES)
def test_times_are_those_of_the_booking_whatever_the_clock_does(name: str):
    for start, hours in (("2026-09-20 01:00", 4), ("2026-09-20 02:30", 1), ("2026-09-20 14:00", 2)):
        wall, daily = datetime.fromisoformat(start), Repetition("daily", times=200)
        times = BookedTimes(wall, ZoneInfo(name), hours * HOUR, daily)
        windows = times.windows(Window(0, 1 << 45))
        file = calendar_file([BookedEvent("b", "x", "y", one, False) for one in windows], 0)
        assert [Window(ms(e.start), ms(e.end)) for e in events(file)] == windows
        assert file.count(b"Z\r\nDTEND:") == len(windows) == 200


def test_an_event_is_the_same_one_when_the_file_is_read_again():
    windows = [Window(day * 86_400_000, day * 86_400_000 + HOUR) for day in (20_000, 20_007)]
    one = [BookedEvent("b\r\nX:y", "a, b; c\nd", "", w, False) for w in windows]
    first, later = (events(calendar_file(one, now)) for now in (0, at("2027-01-01 00:00")))
    assert [e["UID"] for e in first] == [e["UID"] for e in later]
    assert len({e["UID"] for e in first}) == 2
    assert [str(e["SUMMARY"]) for e in first] == ["a, b; c\nd"] * 2
    (gone,) = events(calendar_file([one[0]._replace(is_given_back=True)], 0))
    assert (str(gone["STATUS"]), gone["UID"]) == ("CANCELLED", first[0]["UID"])


# -- who reads what


class FeedHarness(SchedulerHarness):
    """One node with two GPUs that can be booked. It is 4 January 2027."""

    def start(self) -> None:
        self.close()
        self.time = max(self.time, at("2027-01-04 12:00"))
        self.store = Store(self.url)
        self.service = SchedulerService(
            self.store, parse_policy(POLICY), self.listener, clock=lambda: self.time
        )

    def book(self, who: Identity, id_: str, project: str, **more: object) -> None:
        fields: dict[str, object] = {"start": "2027-01-04 14:00", "hours": 2.0, "gpu": 1.0}
        request = m.BookingRequest(**{"id": id_, "name": id_, "project": project, **fields, **more})
        self.service.bookings.book(who, request)

    def address(self, who: Identity) -> str:
        return self.service.booking_feeds.renew(who).path.partition("?key=")[2]

    def read(self, key: str) -> list[str]:
        return [str(e["SUMMARY"]) for e in events(self.service.booking_feeds.read(key))]


@pytest.fixture
def scheduler(tmp_path: Path) -> Iterator[FeedHarness]:
    harness = FeedHarness(f"sqlite:///{tmp_path}/scheduler.sqlite")
    harness.joined()
    harness.book(TEACHER, "lab", "course", repeat=m.Repeat(frequency="weekly", times=2))
    harness.book(GRACE, "own", "vision")
    yield harness
    harness.close()


def test_a_person_sees_the_bookings_of_their_projects_and_no_names_of_people(
    scheduler: FeedHarness,
):
    assert scheduler.read(scheduler.address(ADA)) == ["1 GPU for course: lab"] * 2
    assert scheduler.read(scheduler.address(GRACE)) == ["1 GPU for vision: own"]
    night = Identity("nia", ("night",), "person")
    assert len(scheduler.read(scheduler.address(night))) == 2
    file = scheduler.service.booking_feeds.read(scheduler.address(ADA)).decode()
    assert not any(name in file for name in ("teacher", "grace", "ada"))


def test_a_new_address_ends_the_one_before_and_none_is_left_after_it_is_revoked(
    scheduler: FeedHarness,
):
    feeds, first = scheduler.service.booking_feeds, scheduler.address(ADA)
    second = scheduler.address(ADA)
    hers = scheduler.address(GRACE)
    assert first != second
    for wrong in (first, "", None, second[:-1], "x" * 43):
        with pytest.raises(NotAuthenticated):
            feeds.read(wrong)
    scheduler.start()  # a restart
    feeds = scheduler.service.booking_feeds
    scheduler.joined()
    assert len(scheduler.read(second)) == 2
    feeds.revoke(ADA)
    with pytest.raises(NotAuthenticated):
        feeds.read(second)
    feeds.revoke(ADA)
    assert len(scheduler.read(hers)) == 1
    actions = [entry.action for entry in scheduler.service.queries.audit(None, None, None).audit]
    assert actions.count("renew calendar address") == 3
    assert actions.count("revoke calendar address") == 1


def test_a_time_that_nobody_used_is_cancelled_in_the_calendar(scheduler: FeedHarness):
    scheduler.time = at("2027-01-04 14:20")
    scheduler.service.tick(scheduler.time)
    shown = events(scheduler.service.booking_feeds.read(scheduler.address(ADA)))
    assert [str(one["STATUS"]) for one in shown] == ["CANCELLED", "CONFIRMED"]


def test_a_server_has_an_address_only_for_its_one_user(scheduler: FeedHarness):
    for users in ((), ("ada", "grace")):
        with pytest.raises(Conflict):
            scheduler.address(Identity("hub", (), "server", users=users))
    assert (
        len(scheduler.read(scheduler.address(Identity("hub", (), "server", users=("ada",))))) == 2
    )


@pytest.mark.slow
@pytest.mark.usefixtures("on_both")
def test_calendar_programs_read_it_without_a_token_and_no_log_or_table_has_the_secret(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    async def story() -> None:
        caplog.set_level(logging.DEBUG)
        async with open_server(tmp_path) as running:
            running.server.service.use_policy(parse_policy(POLICY))
            made = await shell(running, "bookings", "--ics", token=running.token("ada"))
            assert made.status == 0, made
            path = made.stdout.strip().removeprefix(running.url)
            key = path.partition("?key=")[2]
            assert len(key) >= 43  # 256 bits
            answer = await running.raw("GET", path)
            assert answer.code == 200
            assert answer.headers["Content-Type"] == "text/calendar; charset=utf-8"
            assert answer.headers["Cache-Control"] == "no-store"
            assert Calendar.from_ical(answer.body)["PRODID"]
            for verb, where in (("GET", path + "x"), ("POST", path), ("DELETE", path)):
                refused = await running.raw(verb, where, b"" if verb == "POST" else None)
                assert refused.code in (401, 405), (verb, where)
                assert key.encode() not in refused.body
            bearer = await running.raw("GET", "/api/v1/bookings", None, key)
            assert bearer.code == 401  # it opens nothing else
            row = running.server.store.feed_of("ada")
            assert row is not None
            assert key not in repr(row)
            assert key not in (await shell(running, "audit", "--json")).stdout
            ended = await shell(running, "bookings", "--no-ics", token=running.token("ada"))
            assert ended.status == 0, ended
            assert (await running.raw("GET", path)).code == 401
        assert key not in "".join(record.getMessage() for record in caplog.records)

    asyncio.run(story())
