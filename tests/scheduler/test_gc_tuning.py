"""Garbage is looked for everywhere when as many have ended as live, not more often; and what has
ended is collected in the end.
"""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import pytest

from jupyter_gpushare.scheduler.gc_tuning import LEAST, LONGEST, GcTuning


class Thing:
    """Refers to itself, as a workload and its pods do."""

    def __init__(self) -> None:
        self.me = self


@pytest.fixture
def counted() -> Iterator[tuple[GcTuning, list[int]]]:
    """[living, ended]."""
    counts = [3 * LEAST, 0]
    yield GcTuning(lambda: counts[0], lambda: counts[1]), counts
    gc.unfreeze()


def test_it_looks_everywhere_when_as_many_have_ended_as_live(counted: tuple[GcTuning, list[int]]):
    garbage, counts = counted
    assert not garbage.tick()
    counts[1] = 3 * LEAST - 1
    assert not garbage.tick()
    counts[1] += 1
    assert garbage.tick()
    assert not garbage.tick()
    counts[:] = [1, 4 * LEAST]
    assert garbage.tick()  # few live, but many have ended


def test_after_an_hour_it_looks_everywhere_in_any_case(counted: tuple[GcTuning, list[int]]):
    garbage, _ = counted
    assert [garbage.tick() for _ in range(LONGEST)].count(True) == 1


def test_what_is_kept_is_set_aside_and_what_has_ended_is_collected(
    counted: tuple[GcTuning, list[int]],
):
    garbage, counts = counted
    thing = Thing()
    seen = weakref.ref(thing)
    assert not garbage.tick()
    assert gc.get_freeze_count() > 0
    del thing
    gc.collect()
    assert seen() is not None
    counts[1] = 3 * LEAST
    assert garbage.tick()
    assert seen() is None


def test_what_is_new_is_collected_at_once(counted: tuple[GcTuning, list[int]]):
    garbage, _ = counted
    garbage.tick()
    seen = weakref.ref(Thing())
    garbage.tick()
    assert seen() is None
