"""When bookings take place: zones, changes of the clock, repetition."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta, tzinfo
from importlib.resources import files
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jupyter_gpushare.core.bookings.recurrence import BookedTimes, Repetition, Window, instant
from tests.example_counts import examples

HOUR = 3_600_000
ALWAYS = Window(0, 1 << 45)
BERLIN = ZoneInfo("Europe/Berlin")
DAILY = Repetition("daily")
WEEKLY = Repetition("weekly")
ZONES = ("Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Kathmandu")
NEW_YEAR = datetime.fromisoformat("2026-01-01")


def newest(name: str) -> tzinfo:
    """A zone of the tzdata package; the machine's own database may be older."""
    with (files("tzdata.zoneinfo") / name).open("rb") as file:
        return ZoneInfo.from_file(file, name)


def utc(at: int) -> str:
    return f"{datetime.fromtimestamp(at / 1000, UTC):%Y-%m-%d %H:%M}"


def starts(series: BookedTimes, between: Window = ALWAYS) -> list[str]:
    return [utc(window.start) for window in series.windows(between)]


def wall(text: str) -> datetime:
    return datetime.fromisoformat(text)


@pytest.mark.parametrize(
    ("zone", "at", "expected"),
    [
        ("Europe/Berlin", "2027-03-28 02:30", "2027-03-28 01:30"),  # gap
        ("Europe/Berlin", "2027-03-28 03:30", "2027-03-28 01:30"),
        ("Europe/Berlin", "2026-10-25 02:30", "2026-10-25 00:30"),  # shown twice
        ("America/New_York", "2027-03-14 02:30", "2027-03-14 07:30"),
        ("America/New_York", "2026-11-01 01:30", "2026-11-01 05:30"),
        ("Australia/Lord_Howe", "2026-10-04 02:15", "2026-10-03 15:45"),
        ("Australia/Lord_Howe", "2027-04-04 01:45", "2027-04-03 14:45"),
        ("Asia/Kathmandu", "2026-12-01 14:00", "2026-12-01 08:15"),
        ("Africa/Casablanca", "2027-02-07 02:30", "2027-02-07 02:30"),
        ("Africa/Casablanca", "2027-03-14 02:30", "2027-03-14 02:30"),
    ],
)
def test_a_wall_time_that_is_skipped_is_shifted_and_one_shown_twice_is_the_first(
    zone, at, expected
):
    assert utc(instant(wall(at), newest(zone))) == expected


@pytest.mark.parametrize(
    ("zone", "first", "expected"),
    [
        ("Europe/Berlin", "2027-03-21 14:00", ["13:00", "12:00", "12:00"]),
        ("America/New_York", "2026-10-25 14:00", ["18:00", "19:00", "19:00"]),
        ("Australia/Lord_Howe", "2026-09-27 14:00", ["03:30", "03:00", "03:00"]),
    ],
)
def test_a_weekly_booking_keeps_its_wall_time(zone, first, expected):
    series = BookedTimes(wall(first), newest(zone), HOUR, Repetition("weekly", times=3))
    assert [at[-5:] for at in starts(series)] == expected


def test_a_booking_keeps_its_duration_when_the_clock_changes():
    night = BookedTimes(wall("2027-03-26 22:30"), BERLIN, 6 * HOUR, Repetition("daily", times=4))
    assert [end - start for start, end in night.windows(ALWAYS)] == [6 * HOUR] * 4


def test_wall_times_are_hours_apart_by_the_clock_of_utc():
    def between(start: str, end: str) -> int:
        return (instant(wall(end), BERLIN) - instant(wall(start), BERLIN)) // HOUR

    assert between("2026-10-25 01:00", "2026-10-25 04:00") == 4
    assert between("2026-10-25 00:00", "2026-10-26 00:00") == 25
    assert between("2027-03-27 14:00", "2027-03-28 14:00") == 23


@pytest.mark.parametrize("zone", ["America/New_York", "Pacific/Kiritimati", "Pacific/Niue"])
def test_the_last_day_counts_to_its_local_end(zone):
    """23:30 of the last day is the next day in UTC west of it, and the day before east of it."""
    series = BookedTimes(
        wall("2026-10-12 23:30"),
        ZoneInfo(zone),
        HOUR,
        Repetition("weekly", until=date(2026, 11, 9)),
    )
    assert len(starts(series)) == 5


def test_days_of_the_week():
    tuesdays_and_fridays = Repetition("weekly", (1, 4), until=date(2026, 12, 11))
    series = BookedTimes(wall("2026-12-01 14:00"), UTC, HOUR, tuesdays_and_fridays)
    assert starts(series) == [f"2026-12-{day:02} 14:00" for day in (1, 4, 8, 11)]


def test_a_booking_without_an_end_is_asked_for_a_time():
    series = BookedTimes(wall("2026-12-01 23:00"), UTC, 2 * HOUR, DAILY)
    day = instant(wall("2027-06-01 00:00"), UTC)
    asked = Window(day, day + 24 * HOUR)
    assert starts(series, asked) == ["2027-05-31 23:00", "2027-06-01 23:00"]
    assert starts(series, Window(day + HOUR, day + 23 * HOUR)) == []


@pytest.mark.parametrize(
    ("repetition", "problem"),
    [
        (Repetition("daily", times=200), None),
        (Repetition("weekly", (0, 6)), None),
        (Repetition("daily", times=201), "1 to 200"),
        (Repetition("daily", times=0), "1 to 200"),
        (Repetition("secondly"), "daily or weekly"),
        (Repetition("daily", (1,)), "only a weekly"),
        (Repetition("weekly", (7,)), "0 (Monday) to 6"),
        (Repetition("weekly", times=3, until=date(2027, 1, 1)), "not both"),
    ],
)
def test_what_can_be_booked(repetition, problem):
    found = repetition.problem
    assert found is None if problem is None else problem in found


@pytest.mark.parametrize(
    ("repetition", "problem"),
    [
        (None, None),
        (Repetition("daily"), None),
        (Repetition("daily", until=date(2027, 7, 19)), None),
        (Repetition("daily", until=date(2027, 7, 20)), "1 to 200 times until"),
        (Repetition("weekly", until=date(2026, 12, 31)), "1 to 200 times until"),
        (Repetition("secondly", until=date(2027, 7, 20)), "daily or weekly"),
    ],
)
def test_times_until_a_day_are_as_many_as_a_number_of_them_may_be(repetition, problem):
    start = datetime.fromisoformat("2027-01-01 14:00")
    found = BookedTimes(start, ZoneInfo("Europe/Berlin"), HOUR, repetition).problem
    assert found is None if problem is None else problem in found


@settings(max_examples=examples(200), deadline=None)
@given(
    st.integers(0, 2 * 365 * 24 * 3600).map(lambda after: NEW_YEAR + timedelta(seconds=after)),
    st.sampled_from(ZONES),
    st.sampled_from([DAILY, WEEKLY]),
    st.integers(1, 30 * HOUR),
    st.integers(1, 40 * HOUR),
)
def test_windows_of_a_time_are_those_of_all_times_that_overlap_it(
    first, name, repetition, length, asked_for
):
    zone = ZoneInfo(name)
    series = BookedTimes(first, zone, length, repetition)
    step = timedelta(days=1 if repetition is DAILY else 7)
    walls = (first + i * step for i in range(60))
    every = [Window(at, at + length) for at in (instant(w, zone) for w in walls)]
    middle = every[20].start
    asked = Window(middle, middle + asked_for)
    assert series.windows(asked) == [w for w in every if w.overlaps(asked)]


@settings(max_examples=examples(200), deadline=None)
@given(
    st.datetimes(NEW_YEAR, NEW_YEAR + timedelta(days=30)),
    st.sampled_from(ZONES),
    st.integers(1, 31 * 24),
    st.sampled_from((DAILY, WEEKLY, Repetition("weekly", (0, 4)), Repetition("weekly", (6,)))),
    st.sampled_from((None, date(2026, 8, 1), date(2027, 11, 1))),
    st.sampled_from((None, 40)),
    st.integers(0, 700 * 24),
)
def test_a_rule_that_began_long_ago_is_the_same_rule(start, zone, hours, rule, until, times, later):
    rule = rule._replace(until=None if times else until, times=times)
    series = BookedTimes(start.replace(microsecond=0), ZoneInfo(zone), hours * HOUR, rule)
    now = instant(start, UTC) + later * HOUR
    all_of_them = series.windows(Window(0, now + 900 * 24 * HOUR))  # from the beginning
    coming = [window for window in all_of_them if now < window.end]
    assert series.windows(Window(now, now + 900 * 24 * HOUR)) == coming
    assert series.next_windows(now, 5) == coming[:5]


def test_a_rule_is_not_followed_from_a_beginning_long_ago():
    series = BookedTimes(wall("1990-01-01 14:00"), BERLIN, HOUR, DAILY)
    day = instant(wall("2027-06-01 00:00"), UTC)
    assert next(series._starts(day)) > wall("2027-05-01")
    assert next(series._starts()) == wall("1990-01-01 14:00")
