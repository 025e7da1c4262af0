"""Bookings: what fits at the same time, the next free time, and never more than there is."""

from __future__ import annotations

import random
from collections.abc import Sequence
from contextlib import suppress
from itertools import combinations, pairwise, starmap

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jupyter_gpushare.core.bookings.calendar import DAY, Booking, Calendar, Overbooked
from jupyter_gpushare.core.bookings.packing import (
    BookedShare,
    Load,
    Packing,
    _fit_in,
    _surely_fit,
    fit_on,
)
from jupyter_gpushare.core.bookings.recurrence import Window
from tests.example_counts import examples

HOUR = 3_600_000
EXAMPLES = settings(max_examples=examples(300), deadline=None)


def clock(hours: float) -> int:
    return round(hours * HOUR)


def hours(start: float, end: float) -> Window:
    return Window(clock(start), clock(end))


def booked(*bookings: tuple[float, float, int], nodes: Sequence[int] = (2,)) -> Calendar:
    """A calendar with bookings as (from, to, milli-GPU)."""
    calendar = Calendar(nodes)
    for i, (start, end, gpu) in enumerate(bookings):
        calendar.add([Booking(f"b{i}", hours(start, end), BookedShare(gpu))])
    return calendar


# -- packing


@pytest.mark.parametrize(
    ("nodes", "gpus", "fits"),
    [
        ((2,), (600, 600, 800), False),
        ((2,), (600, 400, 800), True),
        ((2,), (1500, 500), True),
        ((2,), (1500, 600), False),
        ((2, 2), (2000, 2000), True),
        ((2, 2), (1000, 3000), False),  # 3 GPUs of one booking lie on one node
        ((3, 3), (2000, 2000, 2000), False),
        ((6,), (2000, 2000, 2000), True),
        ((3, 3), (2000, 2000, 1000, 1000), True),
        ((), (), True),
        ((), (10,), False),
        # the largest first leave no room for the last: only 0.5 + 0.3 + 0.2 and 0.4 + 0.3 + 0.3 fit
        ((2,), (500, 400, 300, 300, 300, 200), True),
    ],
)
def test_amounts_fit_by_packing_not_by_their_sum(nodes, gpus, fits):
    assert fit_on(nodes, [BookedShare(gpu) for gpu in gpus]) is fits


def test_a_quota_lies_on_any_nodes():
    assert fit_on((2, 2), [BookedShare(3000, together=False), BookedShare(1000)])
    assert not fit_on((2, 2), [BookedShare(3000, together=False), BookedShare(1500)])


def test_many_parts_are_decided_without_a_search():
    assert fit_on((1000,), [BookedShare(500)] * 2000)
    assert not fit_on((1000,), [BookedShare(510)] * 1001)


def packs(shares: Sequence[BookedShare], nodes: Sequence[Sequence[int]]) -> bool:
    """By trying everything: `nodes` is the room of each device."""
    if not shares:
        return True
    first, rest = shares[0], shares[1:]
    places = [(n, d) for n, devices in enumerate(nodes) for d in range(len(devices))]
    for whole in combinations(places, first.whole):
        if first.together and len({n for n, _ in whole}) > 1:
            continue
        if all(nodes[n][d] == 1000 for n, d in whole):
            after = less(nodes, whole, 1000)
            partly = places if first.part else places[:1] or [(0, 0)]
            for place in partly:
                left = less(after, [place], first.part) if first.part else after
                if all(room >= 0 for devices in left for room in devices) and packs(rest, left):
                    return True
    return False


def less(nodes, places, amount) -> list[list[int]]:
    return [
        [room - amount * ((n, d) in places) for d, room in enumerate(devices)]
        for n, devices in enumerate(nodes)
    ]


def really_fit(nodes: Sequence[int], shares: Sequence[BookedShare]) -> bool:
    return packs(shares, [[1000] * count for count in nodes])


NODES = st.lists(st.integers(1, 3), min_size=1, max_size=2)
SHARES = st.builds(
    BookedShare, st.sampled_from((250, 300, 400, 500, 600, 700, 1000, 1500, 2000)), st.booleans()
)


@EXAMPLES
@given(NODES, st.lists(SHARES, max_size=5))
def test_packing_agrees_with_trying_everything(nodes, shares):
    assert fit_on(nodes, shares) == really_fit(nodes, shares)


# -- windows


def test_a_booking_may_start_when_another_one_ends():
    booked((0, 1, 2000), (1, 2, 2000))


def test_a_refusal_says_when_it_does_not_fit_and_the_next_free_time_is_found():
    calendar = booked((14, 16, 1000), (15, 17, 1000))
    with pytest.raises(Overbooked) as refused:
        calendar.add([Booking("x", hours(14.5, 15.5), BookedShare(1000))])
    assert refused.value.within == hours(15, 15.5)
    free = calendar.next_free(HOUR, BookedShare(1000), clock(14.5), DAY)
    assert free == hours(16, 17)
    assert calendar.next_free(HOUR, BookedShare(2000), clock(13.5), DAY) == hours(17, 18)


def test_what_never_fits_has_no_next_free_time():
    calendar = booked((14, 16, 1000))
    assert calendar.next_free(1, BookedShare(3000), 0, 1 << 60) is None
    assert calendar.next_free(HOUR, BookedShare(2000), clock(14), clock(16)) is None


def test_bookings_fit_beside_quotas():
    calendar = Calendar([2], [BookedShare(600, together=False), BookedShare(600, together=False)])
    with pytest.raises(Overbooked):
        calendar.add([Booking("a", hours(1, 2), BookedShare(800))])
    calendar.add([Booking("a", hours(1, 2), BookedShare(400))])


def test_where_quotas_do_not_fit_nothing_is_booked():
    calendar = Calendar([2, 2], [BookedShare(3000)])
    assert calendar.conflict(hours(1, 2), BookedShare(500)) == hours(1, 2)
    assert calendar.next_free(HOUR, BookedShare(500), 0, DAY) is None


def test_a_booking_that_repeats_is_added_as_a_whole_or_not_at_all():
    calendar = booked((30, 31, 2000))
    daily = [Booking("x", hours(day * 24 + 6, day * 24 + 7), BookedShare(1000)) for day in range(3)]
    with pytest.raises(Overbooked) as refused:
        calendar.add(daily)
    assert refused.value.within == hours(30, 31)
    assert calendar.during(hours(0, 30)) == []
    calendar.remove("b0")
    calendar.add(daily)
    assert calendar.during(hours(0, 99)) == daily


@EXAMPLES
@given(
    NODES,
    st.lists(SHARES, max_size=2),
    st.lists(st.tuples(st.integers(0, 60), st.integers(1, 40), SHARES), max_size=8),
)
def test_capacity_is_never_booked_twice_and_only_what_does_not_fit_is_refused(
    nodes, always, requests
):
    calendar = Calendar(nodes, always)
    accepted: list[Booking] = []
    for i, (start, length, share) in enumerate(requests):
        booking = Booking(str(i), hours(start, start + length), share)
        fits = all(
            really_fit(nodes, [*always, *shares_at(hour, [*accepted, booking])])
            for hour in range(start, start + length)
        )
        try:
            calendar.add([booking])
        except Overbooked:
            assert not fits
        else:
            assert fits
            accepted.append(booking)
    assert calendar.during(hours(0, 200)) == sorted(accepted, key=lambda b: (b.window, b.id))


def shares_at(hour: int, bookings: Sequence[Booking]) -> list[BookedShare]:
    return [b.share for b in bookings if b.window.start <= hour * HOUR < b.window.end]


@EXAMPLES
@given(
    st.lists(st.tuples(st.integers(0, 20), st.integers(1, 12), SHARES), max_size=6),
    SHARES,
    st.integers(1, 8),
    st.integers(0, 20),
)
def test_the_next_free_time_is_the_first_that_fits(requests, share, length, not_before):
    calendar = Calendar([2])
    for i, (start, hours_, booked_share) in enumerate(requests):
        window = hours(start, start + hours_)
        if calendar.conflict(window, booked_share) is None:
            calendar.add([Booking(str(i), window, booked_share)])
    fitting = (
        hours(start, start + length)
        for start in range(not_before, 40)
        if calendar.conflict(hours(start, start + length), share) is None
    )
    found = calendar.next_free(length * HOUR, share, not_before * HOUR, 40 * HOUR)
    assert found == next(fitting, None)


def slow_conflict(calendar: Calendar, bookings: Sequence[Booking], window: Window, share):
    """As `Calendar.conflict` is meant, by reading all bookings again for each part."""
    near = [b for b in bookings if b.window.overlaps(window)]
    edges = {edge for b in near for edge in b.window if window.start < edge < window.end}
    for part in starmap(Window, pairwise(sorted(edges | set(window)))):
        there = [b.share for b in near if b.window.overlaps(part)]
        if not fit_on(calendar.nodes, (*calendar.always, *there, share)):
            return part
    return None


WINDOWS = st.builds(
    lambda start, length: hours(start, start + length), st.integers(0, 60), st.integers(1, 40)
)
CHANGES = st.lists(st.tuples(st.sampled_from("aabbc-"), WINDOWS, SHARES), max_size=12)


@EXAMPLES
@given(NODES, st.lists(SHARES, max_size=2), CHANGES, WINDOWS, SHARES)
def test_what_is_kept_says_the_same_as_reading_all_bookings_again(
    nodes, always, changes, window, share
):
    calendar, known = Calendar(nodes, always), []
    for id_, when, what in changes:
        if id_ == "-":
            removed = known[0].id if known else "none"
            calendar.remove(removed)
            known = [b for b in known if b.id != removed]
            continue
        booking = Booking(id_, when, what)
        expected = None if booking in known else slow_conflict(calendar, known, when, what)
        try:
            calendar.add([booking])
        except Overbooked as refused:
            assert refused.within == expected
        else:
            assert expected is None
            known += [] if booking in known else [booking]
    assert calendar.conflict(window, share) == slow_conflict(calendar, known, window, share)
    assert calendar.during(hours(0, 200)) == sorted(known, key=lambda b: (b.window, b.id, b.share))
    for id_ in "abc":
        calendar.remove(id_)
    assert calendar.conflict(window, share) == slow_conflict(calendar, [], window, share)


@EXAMPLES
@given(st.lists(st.integers(1, 9), max_size=9), st.lists(st.integers(1, 6), min_size=1, max_size=4))
def test_what_surely_fits_fits(sizes, bins):
    if sizes and _surely_fit(sum(sizes), max(sizes), sum(bins), len(bins)):
        assert _fit_in(sizes, bins)


def test_a_booking_costs_what_is_booked_around_it(monkeypatch):
    """Ten times as many bookings on ten times as many days: ten times as many steps; and one
    booking is removed in as many steps among many as among few.
    """
    steps = 0

    def counted(method):
        def count(*args):
            nonlocal steps
            steps += 1
            return method(*args)

        return count

    for owner, name in ((Packing, "has_room"), (Load, "add"), (Load, "remove"), (Load, "copy")):
        monkeypatch.setattr(owner, name, counted(getattr(owner, name)))
    book(1000)
    few, steps = steps, 0
    calendar = book(10_000)
    assert 0 < steps < 12 * few
    steps = 0
    calendar.remove("500")
    assert 0 < steps < 40


def book(count: int) -> Calendar:
    """So many bookings at random, ten per day; what does not fit is left out."""
    chance = random.Random(7)
    calendar = Calendar([8] * 4)
    for i in range(count):
        start = chance.randrange(count // 10 * DAY)
        window = Window(start, start + chance.randrange(HOUR, 6 * HOUR))
        share = BookedShare(chance.choice((300, 500, 700, 1000, 2000)))
        with suppress(Overbooked):
            calendar.add([Booking(str(i), window, share)])
    return calendar
