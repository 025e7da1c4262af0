"""The scheduler hears what notebooks are called now: once, again when it could not hear, and
nothing that it knows.
"""

from __future__ import annotations

import asyncio
import logging

import msgspec

from jupyter_gpushare.core.model.errors import GpuShareError, NotAllowed, NotFound, Unavailable
from jupyter_gpushare.messages import WorkloadChanged, WorkloadView
from jupyter_gpushare.server_extension.services.notebook_names import NotebookNames
from tests.server_extension.test_kernel_registry import changed, directory, workload

LOG = logging.getLogger("test")


class Listening:
    """A scheduler that takes every name; `fails` is what it answers instead, one after the other."""

    def __init__(self, *fails: GpuShareError) -> None:
        self.heard: list[tuple[str, str]] = []
        self.fails = list(fails)

    async def rename(self, workload_id: str, name: str) -> WorkloadView:
        self.heard.append((workload_id, name))
        if self.fails:
            raise self.fails.pop(0)
        return workload()


def looked(known, scheduler, *names: str):
    """Looks as often as there are names, each time when the notebook is called so."""

    async def look():
        naming = NotebookNames(known, scheduler, LOG)
        for name in names:
            known.appeared("k", name)
            naming.tell()
            await naming._tasks.wait()
            await asyncio.sleep(0)
        await naming.stop()

    asyncio.run(look())
    return scheduler.heard


def called(name: str, revision: int) -> WorkloadChanged:
    return changed(msgspec.structs.replace(workload(revision), name=name))


def test_a_new_name_is_told_once():
    assert looked(
        directory(changed(workload())), Listening(), "a.ipynb", "b.ipynb", "b.ipynb", "c.ipynb"
    ) == [("k.1", "b.ipynb"), ("k.1", "c.ipynb")]


def test_what_the_scheduler_knows_is_not_told():
    assert looked(directory(called("b.ipynb", 1)), Listening(), "b.ipynb") == []


def test_a_scheduler_that_was_away_hears_it_later():
    assert (
        looked(directory(changed(workload())), Listening(Unavailable("away")), "b.ipynb", "b.ipynb")
        == [("k.1", "b.ipynb")] * 2
    )


def test_what_is_refused_is_not_said_for_ever():
    for error in (NotFound("no such route"), NotAllowed("not yours")):
        assert looked(directory(changed(workload())), Listening(error), "b.ipynb", "b.ipynb") == [
            ("k.1", "b.ipynb")
        ]


def test_the_old_name_again_is_news_after_another():
    known, scheduler = directory(changed(workload())), Listening()
    looked(known, scheduler, "b.ipynb")
    known.scheduler_said(called("b.ipynb", 2))
    assert looked(known, scheduler, "a.ipynb")[-1] == ("k.1", "a.ipynb")


def test_a_kernel_that_asks_for_nothing_has_nobody_to_be_told():
    known = directory()
    known.asks_nothing("k")
    assert looked(known, Listening(), "b.ipynb") == []
