"""The scheduler receives each new notebook name once, and again if it was unreachable."""

from __future__ import annotations

import asyncio
import logging

import msgspec

from jupyter_gpushare.client import SchedulerClient
from jupyter_gpushare.core.model.errors import GpuShareError, NotAllowed, NotFound, Unavailable
from jupyter_gpushare.messages import WorkloadChanged, WorkloadName, decode
from jupyter_gpushare.server_extension.services.notebook_names import NotebookNames
from tests.server_extension.fake_transport import FakeTransport
from tests.server_extension.test_kernel_registry import changed, registry_with, workload

LOG = logging.getLogger("test")


class Renames:
    """A scheduler that records names; `errors` are its first answers."""

    def __init__(self, *errors: GpuShareError) -> None:
        self.received: list[tuple[str, str]] = []
        self._errors = list(errors)

    def __call__(self, verb: str, path: str, body: bytes | None) -> object:
        assert body is not None
        self.received.append((path.rsplit("/", maxsplit=1)[-1], decode(WorkloadName, body).name))
        if self._errors:
            raise self._errors.pop(0)
        return workload()


def sent(registry, scheduler: Renames, *names: str) -> list[tuple[str, str]]:
    """What the scheduler received after the notebook was renamed to each of these names."""

    async def rename():
        client = SchedulerClient(FakeTransport(scheduler))
        naming = NotebookNames(registry, None, client, LOG, changed=lambda kernel_ids: None)
        for name in names:
            registry.add("k", name)
            naming.send()
            while naming._tasks:
                await asyncio.sleep(0)
        await naming.stop()

    asyncio.run(rename())
    return scheduler.received


def renamed(name: str, revision: int) -> WorkloadChanged:
    return changed(msgspec.structs.replace(workload(revision), name=name))


def test_a_new_name_is_sent_once():
    registry = registry_with(changed(workload()))
    received = sent(registry, Renames(), "a.ipynb", "b.ipynb", "b.ipynb", "c.ipynb")
    assert received == [("k.1", "b.ipynb"), ("k.1", "c.ipynb")]


def test_a_name_that_the_scheduler_knows_is_not_sent():
    assert sent(registry_with(renamed("b.ipynb", 1)), Renames(), "b.ipynb") == []


def test_the_name_is_sent_again_to_a_scheduler_that_was_unreachable():
    scheduler = Renames(Unavailable("away"))
    received = sent(registry_with(changed(workload())), scheduler, "b.ipynb", "b.ipynb")
    assert received == [("k.1", "b.ipynb")] * 2


def test_a_refused_name_is_not_sent_again():
    for error in (NotFound("no such route"), NotAllowed("not yours")):
        registry = registry_with(changed(workload()))
        assert sent(registry, Renames(error), "b.ipynb", "b.ipynb") == [("k.1", "b.ipynb")]


def test_an_earlier_name_is_sent_after_another_one():
    registry, scheduler = registry_with(changed(workload())), Renames()
    sent(registry, scheduler, "b.ipynb")
    registry.apply_frame(renamed("b.ipynb", 2))
    assert sent(registry, scheduler, "a.ipynb")[-1] == ("k.1", "a.ipynb")


def test_the_name_of_a_kernel_without_request_is_not_sent():
    registry = registry_with()
    registry.clear_request("k")
    assert sent(registry, Renames(), "b.ipynb") == []
