"""Garbage is looked for when as much has changed as is remembered, not more often; and what has ended is let go in the end."""

from __future__ import annotations

import gc
import weakref

from jupyter_gpushare.scheduler.garbage import LEAST, Garbage


class Thing:
    """Refers to itself, as a workload and its pods do."""

    def __init__(self) -> None:
        self.me = self


def test_it_looks_when_as_much_has_changed_as_is_remembered():
    living, ended = [0], [0]
    garbage = Garbage(lambda: living[0], lambda: ended[0])
    try:
        assert not garbage.tick()
        living[0] = LEAST
        assert garbage.tick()
        assert not garbage.tick()
        living[0] = 10 * LEAST
        assert garbage.tick()
        ended[0] = 9 * LEAST
        assert not garbage.tick()
        ended[0] = 10 * LEAST
        assert garbage.tick()
    finally:
        gc.unfreeze()


def test_what_was_set_aside_and_has_ended_is_let_go():
    living, ended = [LEAST], [0]
    garbage = Garbage(lambda: living[0], lambda: ended[0])
    try:
        thing = Thing()
        seen = weakref.ref(thing)
        assert garbage.tick()
        assert gc.get_freeze_count() > 0
        del thing
        gc.collect()
        assert seen() is not None
        ended[0] = LEAST
        assert garbage.tick()
        assert seen() is None
    finally:
        gc.unfreeze()
