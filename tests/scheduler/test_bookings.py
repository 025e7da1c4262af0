"""Bookings in the service: what may be booked, by whom, and that it is there in time."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from jupyter_gpushare import messages as m
from jupyter_gpushare.core.model.errors import Conflict, InvalidInput, NotAllowed, NotFound
from jupyter_gpushare.scheduler.auth.identity import Identity
from jupyter_gpushare.scheduler.policy.policy_file import PolicyErrors, parse_policy
from jupyter_gpushare.scheduler.service.metrics import Metrics
from jupyter_gpushare.scheduler.service.service import SchedulerService
from jupyter_gpushare.scheduler.store.store import Store
from tests.scheduler.scheduler_harness import ADMIN, SchedulerHarness

POLICY = """
node_pools: [{name: default, bookable: {gpu: 1}}]
projects:
  - {name: course, managers: [teacher], members: [ada, teacher]}
  - {name: vision, members: [ada, grace], booking: {max_ahead: 14d, max_hours_per_week: 10},
     pools: {default: {gpu: {quota: 1}}}}
defaults: {notice: 30s}
"""
LAB = """
bookings:
  - {name: lab, project: course, gpu: 1, from: 2027-01-05 14:00, for: 2h, repeat: weekly,
     time_zone: Europe/Berlin}
"""
TEACHER, ADA, GRACE = (Identity(name, (), "person") for name in ("teacher", "ada", "grace"))
MINUTE, HOUR = 60_000, 3_600_000


def at(text: str) -> int:
    """Milliseconds of a time in UTC."""
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp() * 1000)


class BookedHarness(SchedulerHarness):
    """One node with two GPUs: one is vision's quota, one can be booked. It is 4 January 2027."""

    def __init__(self, url: str, policy: str = POLICY) -> None:
        self.policy = policy
        super().__init__(url)

    def start(self) -> None:
        self.close()
        self.time = max(self.time, at("2027-01-04 12:00"))
        self.store = Store(self.url)
        self.service = SchedulerService(
            self.store, parse_policy(self.policy), self.listener, clock=lambda: self.time
        )

    def book(self, person: Identity, id_: str, **more: object) -> m.BookingFit:
        fields: dict[str, object] = {"project": "course", "gpu": 1.0, "hours": 2.0}
        fields |= {"start": "2027-01-04 14:00", "id": id_}
        return self.service.bookings.book(person, m.BookingRequest(**{**fields, **more}))

    def rows(self, who: Identity) -> dict[str, m.BookingRow]:
        return {row.id: row for row in self.service.bookings.bookings(who).bookings}

    def tick(self, time: int) -> None:
        self.time = time
        self.service.tick(time)
        self.service.run_cycle()

    def request(self, who: Identity, id_: str, project: str, gpu: float = 1) -> None:
        pods = [m.PodRequest(name="kernel", gpu=gpu)]
        self.service.submit(who, m.WorkloadRequest(id=id_, project=project, pods=pods))
        self.service.run_cycle()

    def said(self, id_: str) -> list[str]:
        events = self.service.unit_of_work.records[id_].events
        return [event.message for event in events if event.kind == "granted"]

    def granted(self) -> set[str]:
        records = self.service.unit_of_work.records.values()
        return {r.id for r in records if any(one.wanted == "hold" for one in r.leases.values())}


@pytest.fixture
def scheduler(tmp_path: Path) -> Iterator[BookedHarness]:
    harness = BookedHarness(f"sqlite:///{tmp_path}/scheduler.sqlite")
    harness.joined()
    yield harness
    harness.close()


def test_a_manager_books_for_the_project_and_a_member_for_herself(scheduler: BookedHarness):
    row = scheduler.book(TEACHER, "lab").booking
    assert row is not None
    assert (row.who, row.source, row.state) == ("project", "bookable", "upcoming")
    assert (row.next_start, row.next_end) == (
        "2027-01-04T14:00:00.000+00:00",
        "2027-01-04T16:00:00.000+00:00",
    )
    with pytest.raises(NotAllowed, match="only managers book"):
        scheduler.book(ADA, "mine")
    own = scheduler.book(ADA, "mine", project="vision").booking
    assert own is not None
    assert (own.who, own.source) == ("person", "quota")
    assert set(scheduler.rows(ADA)) == {"lab", "mine"}
    assert scheduler.rows(ADA)["lab"].user == ""
    assert scheduler.rows(GRACE)["mine"].user == ""
    assert set(scheduler.rows(ADMIN)) == {"lab", "mine"}
    assert scheduler.rows(ADMIN)["mine"].user == "ada"


def test_what_overlaps_is_refused_with_the_next_free_time(scheduler: BookedHarness):
    scheduler.book(TEACHER, "a", gpu=0.6)
    scheduler.book(TEACHER, "b", gpu=0.4, start="2027-01-04 15:00")
    with pytest.raises(Conflict) as refused:
        scheduler.book(TEACHER, "c", gpu=0.5, hours=1.0, start="2027-01-04 14:30")
    assert refused.value.message == (
        "it does not fit from 2027-01-04 14:30 to 2027-01-04 15:00; the next free time is"
        " 2027-01-04 16:00 (UTC)"
    )
    fit = scheduler.book(TEACHER, "c", gpu=0.5, start="2027-01-04 14:30", dry_run=True)
    assert (fit.fits, fit.next_free) == (False, "2027-01-04T16:00:00.000+00:00")
    assert scheduler.book(TEACHER, "c", gpu=0.4, hours=1.0, dry_run=True).fits
    assert set(scheduler.rows(TEACHER)) == {"a", "b"}


@pytest.mark.parametrize(
    ("more", "field", "text"),
    [
        ({"gpu": 3.0}, "gpu", "can never be booked"),
        ({"gpu": 0.0}, "gpu", "more than 0"),
        ({"start": "2027-01-03 14:00"}, "start", "is over"),
        ({"start": "tomorrow"}, "start", "must be a wall time such as 2026-12-01 14:00"),
        ({"time_zone": "Berlin"}, "time_zone", "Europe/Berlin"),
        ({"hours": 0.0}, "for", "a booking lasts"),
        ({"project": "none"}, "project", "unknown project"),
        ({"pool": "none"}, "pool", "unknown node pool"),
        ({"id": "policy:x"}, "id", "must not begin"),
        ({"repeat": m.Repeat(frequency="weekly")}, "repeat.until", "until when"),
        ({"repeat": m.Repeat(frequency="daily", times=500)}, "repeat", "1 to 200 times"),
    ],
)
def test_mistakes_name_the_field_and_change_nothing(scheduler, more, field, text):
    with pytest.raises(InvalidInput, match=text) as refused:
        scheduler.book(TEACHER, **{"id_": more.pop("id", "x"), **more})
    assert refused.value.field == field
    assert scheduler.rows(TEACHER) == {}


def test_members_book_within_the_rules_of_the_policy(scheduler: BookedHarness):
    def mine(id_: str, **more: object) -> m.BookingFit:
        return scheduler.book(ADA, id_, project="vision", gpu=0.2, **more)

    with pytest.raises(InvalidInput, match="at most 14 d ahead"):
        mine("far", start="2027-01-20 14:00")
    mine("a", hours=6.0)
    with pytest.raises(InvalidInput, match="10 hours a week; week 1 of 2027 would have 11"):
        mine("b", start="2027-01-05 14:00", hours=5.0)
    mine("b", start="2027-01-05 14:00", hours=4.0)
    mine("c", start="2027-01-11 14:00", hours=10.0)
    with pytest.raises(NotAllowed, match="manager"):
        mine("d", who="project")
    with pytest.raises(NotAllowed, match="not a member"):
        scheduler.book(Identity("eve", (), "person"), "e", project="vision")


def test_a_repeated_submission_books_once(scheduler: BookedHarness):
    first, again = scheduler.book(TEACHER, "lab"), scheduler.book(TEACHER, "lab")
    assert first.booking == again.booking
    with pytest.raises(Conflict, match="choose another one"):
        scheduler.book(TEACHER, "lab", start="2027-01-04 15:00")
    with pytest.raises(Conflict, match="choose another one"):
        scheduler.book(ADA, "lab", project="vision")


def test_bookings_survive_a_restart_and_are_cancelled(scheduler: BookedHarness):
    scheduler.book(TEACHER, "lab", repeat=m.Repeat(frequency="weekly", until="2027-02-01"))
    before = scheduler.rows(TEACHER)
    scheduler.start()
    scheduler.joined()
    assert scheduler.rows(TEACHER) == before
    assert before["lab"].repeats == "every Monday until 2027-02-01"
    assert len(before["lab"].times) == 5
    with pytest.raises(NotFound):
        scheduler.service.bookings.cancel(GRACE, "lab")
    with pytest.raises(NotAllowed, match="somebody else"):
        scheduler.service.bookings.cancel(ADA, "lab")
    scheduler.service.bookings.cancel(TEACHER, "lab")
    scheduler.start()
    assert scheduler.rows(TEACHER) == {}
    actions = [row.action for row in scheduler.service.queries.audit().audit]
    assert actions == ["book", "cancel booking"]


def test_others_borrow_what_is_booked_until_the_notice(scheduler: BookedHarness):
    """Ada's project has borrowed the GPU that is booked; 35 s before the start she gets notice."""
    scheduler.book(TEACHER, "lab")
    for id_ in ("v1", "v2"):
        scheduler.request(ADA, id_, "vision")
    assert scheduler.granted() == {"v1", "v2"}
    within, beyond = (scheduler.said(id_)[-1] for id_ in ("v1", "v2"))
    assert within == "Granted 1 GPU on n0."
    assert beyond == (
        "Granted 1 GPU on n0. It may be borrowed only until 2027-01-04 14:00 UTC: GPUs are booked"
        ' for project "course".'
    )
    start = at("2027-01-04 14:00")
    scheduler.tick(start - 36_000)
    assert scheduler.granted() == {"v1", "v2"}
    scheduler.tick(start - 35_000)
    assert len(scheduler.granted()) == 1
    (evicted,) = (lease for lease in scheduler.leases() if lease.wanted == "evict")
    assert evicted.notice_ms == 30_000
    assert "booked for project" in evicted.message
    scheduler.service.end(ADA, evicted.id.split("@")[0])
    scheduler.tick(start)
    scheduler.request(ADA, "v3", "vision")
    assert scheduler.service.queries.workload(ADA, "v3").reason.code == "BookedFor"
    scheduler.request(TEACHER, "c1", "course", 0.5)
    scheduler.request(ADA, "c2", "course", 0.5)
    assert scheduler.granted() >= {"c1", "c2"}
    assert "v3" not in scheduler.granted()
    scheduler.nothing_is_booked_twice()


def test_metrics_count_what_is_used_and_unused(scheduler: BookedHarness):
    def shown() -> list[str]:
        text = Metrics(scheduler.service).text().decode()
        return [line for line in text.splitlines() if line.startswith("gpushare_booked_gpus{")]

    scheduler.book(TEACHER, "lab")
    assert shown() == []
    scheduler.tick(at("2027-01-04 14:00"))
    scheduler.request(TEACHER, "c1", "course", 0.25)
    assert shown() == [
        'gpushare_booked_gpus{pool="default",state="used"} 0.25',
        'gpushare_booked_gpus{pool="default",state="unused"} 0.75',
    ]


def test_after_a_restart_the_gpu_is_still_kept(scheduler: BookedHarness):
    scheduler.book(TEACHER, "lab")
    scheduler.tick(at("2027-01-04 14:00"))
    scheduler.start()
    scheduler.joined()
    for id_ in ("v1", "v2"):
        scheduler.request(ADA, id_, "vision")
    assert scheduler.granted() == {"v1"}
    scheduler.request(TEACHER, "c1", "course")
    assert scheduler.granted() == {"v1", "c1"}


def test_a_no_show_gives_it_back(scheduler: BookedHarness):
    scheduler.book(TEACHER, "lab")
    start = at("2027-01-04 14:00")
    scheduler.tick(start)
    for id_ in ("v1", "v2"):
        scheduler.request(ADA, id_, "vision")
    assert scheduler.granted() == {"v1"}
    scheduler.tick(start + 10 * MINUTE - 1)
    assert scheduler.granted() == {"v1"}
    scheduler.tick(start + 10 * MINUTE)
    assert scheduler.granted() == {"v1", "v2"}
    assert scheduler.rows(TEACHER)["lab"].times[0].state == "given back"
    scheduler.start()
    assert scheduler.rows(TEACHER)["lab"].times[0].state == "given back"
    assert "give back booking" in [r.action for r in scheduler.service.queries.audit().audit]


def test_what_is_used_once_is_not_given_back(scheduler: BookedHarness):
    scheduler.book(TEACHER, "lab")
    start = at("2027-01-04 14:00")
    scheduler.tick(start)
    scheduler.request(TEACHER, "c1", "course")
    scheduler.tick(start + MINUTE)
    scheduler.service.end(TEACHER, "c1")
    scheduler.tick(start + 11 * MINUTE)
    assert scheduler.rows(TEACHER)["lab"].times[0].state == "active"


def test_the_policy_books_in_its_time_zone(tmp_path: Path):
    scheduler = BookedHarness(f"sqlite:///{tmp_path}/scheduler.sqlite", POLICY + LAB)
    scheduler.joined()
    row = scheduler.rows(TEACHER)["policy:lab"]
    assert row.next_start == "2027-01-05T13:00:00.000+00:00"
    assert row.repeats == "every Tuesday"
    summer = [time.start for time in row.times if time.start > "2027-03-28"]
    assert summer == []  # ten times are shown
    with pytest.raises(NotAllowed, match="the policy"):
        scheduler.service.bookings.cancel(TEACHER, "policy:lab")
    with pytest.raises(Conflict, match="2027-01-05 16:00"):
        scheduler.book(TEACHER, "x", start="2027-01-05 14:30", time_zone="Europe/Berlin")
    scheduler.close()


def test_a_booking_that_no_longer_fits_is_reported(scheduler: BookedHarness):
    scheduler.book(TEACHER, "lab")
    assert scheduler.rows(TEACHER)["lab"].problem == ""
    scheduler.service.use_policy(parse_policy(POLICY.replace("bookable: {gpu: 1}", "")))
    assert "does not fit" in scheduler.rows(TEACHER)["lab"].problem


def test_the_calendar_shows_what_is_free(scheduler: BookedHarness):
    scheduler.book(TEACHER, "lab", gpu=0.6)
    found = scheduler.service.bookings.calendar(
        ADA, None, "2027-01-04T12:00:00Z", "2027-01-04T18:00:00Z"
    )
    (entry,) = found.entries
    assert (entry.project, entry.gpu, entry.mine, entry.may_cancel) == ("course", 0.6, True, False)
    free = [(one.start[11:16], one.bookable, one.quota) for one in found.free]
    assert free == [
        ("12:00", 1.0, {"vision": 1.0}),
        ("14:00", 0.4, {"vision": 1.0}),
        ("16:00", 1.0, {"vision": 1.0}),
    ]
    (entry,) = scheduler.service.bookings.calendar(
        GRACE, None, "2027-01-04T12:00:00Z", "2027-01-04T18:00:00Z"
    ).entries
    assert (entry.project, entry.name, entry.booking, entry.mine) == ("course", "", "", False)


@pytest.mark.parametrize(
    ("booking", "problem"),
    [
        ("{name: x, project: none, gpu: 1, from: 2027-01-05 14:00, for: 2h}", "no project 'none'"),
        ("{name: x, project: course, gpu: 1, from: 2027-13-05 14:00, for: 2h}", "wall time"),
        ("{name: x, project: course, gpu: 1, from: 2027-01-05 14:00, for: 1s}", "a booking lasts"),
        ("{name: x, project: course, gpu: 0, from: 2027-01-05 14:00, for: 2h}", "more than 0"),
        (
            "{name: x, project: course, gpu: 1, from: 2027-01-05 14:00, for: 2h, times: 2}",
            "state repeat",
        ),
        (
            "{name: x, project: course, gpu: 1, from: 2027-01-05 14:00, for: 2h, days: [someday]}",
            "day of the week",
        ),
    ],
)
def test_mistakes_in_the_policy_are_refused_with_their_line(booking: str, problem: str):
    with pytest.raises(PolicyErrors) as refused:
        parse_policy(f"{POLICY}bookings:\n  - {booking}\n")
    assert any(problem in str(one) and one.line == 9 for one in refused.value.problems)
