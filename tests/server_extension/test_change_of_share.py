"""A share is changed make-before-break: one call, and the old share stays until the new one is
granted.
"""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Callable, Coroutine

import msgspec
import pytest

from jupyter_gpushare.client import SchedulerClient
from jupyter_gpushare.core.model.errors import Conflict, NotFound, Unavailable
from jupyter_gpushare.messages import (
    Ended,
    ErrorDetail,
    KernelRequest,
    PodView,
    ServerWelcome,
    Share,
    WhatIfAnswer,
    WorkloadGone,
    WorkloadRequest,
    WorkloadView,
    decode,
    error_of,
)
from jupyter_gpushare.server_extension.clients.agent_client import AgentClient
from jupyter_gpushare.server_extension.clients.startup import StartupState
from jupyter_gpushare.server_extension.kernels.kernel_registry import KernelRegistry
from jupyter_gpushare.server_extension.requests.submitter import PreviousRequests, Submitter
from jupyter_gpushare.server_extension.requests.workload_client import WorkloadClient
from tests.server_extension.fake_transport import FakeTransport
from tests.server_extension.test_kernel_registry import changed, lease, state, workload

LOG = logging.getLogger("test")
HALF, WHOLE, DOUBLE = KernelRequest(gpu=0.5), KernelRequest(gpu=1), KernelRequest(gpu=2)


class Scheduler:
    """Answers like a scheduler: `free` GPUs are granted at once."""

    def __init__(self) -> None:
        self.free = 1.0
        self.error: Exception | None = None
        self.what_if = WhatIfAnswer(starts_now=True)
        self.submitted: list[WorkloadRequest] = []
        self.workloads: dict[str, WorkloadView] = {}
        self.calls: list[str] = []
        self._revision = 0

    def __call__(self, verb: str, path: str, body: bytes | None) -> object:
        workload_id = path.rsplit("/", maxsplit=1)[-1]
        self.calls.append(f"{verb} {path.split('/')[3]}")
        if verb == "GET":
            if workload_id not in self.workloads:
                raise NotFound("no such workload")
            return self.workloads[workload_id]
        if verb == "DELETE":
            self.workloads.pop(workload_id, None)
            return Ended(id=workload_id)
        assert body is not None
        if self.error is not None:
            raise self.error
        if path.endswith("what-if"):
            return self.what_if
        return self._submit(decode(WorkloadRequest, body))

    def _submit(self, request: WorkloadRequest) -> WorkloadView:
        self.submitted.append(request)
        gpu = float(str(request.pods[0].gpu))
        fits = gpu <= self.free
        old = self.workloads.get(request.replaces or "")
        if old is not None and (fits or old.pods[0].lease is None):
            del self.workloads[old.id]
        view = self.view(request.id, gpu, fits)
        self.workloads[request.id] = view
        return view

    def view(self, workload_id: str, gpu: float, fits: bool) -> WorkloadView:
        self._revision += 1
        granted = msgspec.structs.replace(lease(), workload=workload_id) if fits else None
        return msgspec.structs.replace(
            workload(self._revision, workload_id=workload_id),
            request=Share(gpu=gpu),
            pods=[PodView(name="kernel", state="running" if fits else "pending", lease=granted)],
            state="running" if fits else "pending",
        )


class Setup:
    """One kernel `k` with its registry and submitter."""

    def __init__(self) -> None:
        self.scheduler, self.registry = Scheduler(), KernelRegistry()
        self.registry.add("k", "a.ipynb")
        agent = AgentClient("/nowhere", LOG)
        agent.welcome = ServerWelcome(node="n", simulated=True, tiers=[], kernels=[])
        agent.connected.set()
        self.transport = FakeTransport(self.scheduler)
        client = SchedulerClient(self.transport)
        workloads = WorkloadClient(client, agent, StartupState(), LOG, user=None)
        self.submitter = Submitter(self.registry, workloads, LOG, changed=lambda kernel_ids: None)

    async def request(self, request: KernelRequest) -> PreviousRequests:
        return await self.submitter.request("k", request)

    @property
    def kernel(self):
        return self.registry.view("k")

    async def until(self, condition: Callable[[], object]) -> None:
        """Wait for background tasks."""
        async with asyncio.timeout(60):
            while not condition():
                await asyncio.sleep(0.01)


def in_event_loop(test: Callable[..., Coroutine[None, None, None]]) -> Callable[..., None]:
    @functools.wraps(test)
    def run(**arguments: object) -> None:
        asyncio.run(test(**arguments))

    return run


@in_event_loop
async def test_a_change_is_one_call_and_granted_at_once():
    setup = Setup()
    await setup.request(HALF)
    old = setup.kernel.workload
    setup.scheduler.calls.clear()
    assert await setup.request(WHOLE) == (HALF, None)
    assert setup.scheduler.calls == ["POST workloads"]
    assert setup.scheduler.submitted[-1].replaces == old
    kernel = setup.kernel
    assert (kernel.state, kernel.request.gpu, kernel.pending_change) == ("granted", 1.0, None)


@in_event_loop
async def test_the_old_share_stays_while_the_change_is_pending():
    setup = Setup()
    await setup.request(HALF)
    old = setup.kernel.workload
    await setup.request(DOUBLE)
    kernel = setup.kernel
    assert (kernel.state, kernel.request.gpu, kernel.workload) == ("granted", 0.5, old)
    assert (kernel.pending_change.request.gpu, kernel.pending_change.queue_position) == (2.0, 3)
    new = kernel.pending_change.workload
    setup.registry.apply_frame(changed(setup.scheduler.view(new, 2.0, fits=True)))
    setup.registry.apply_frame(WorkloadGone(revision=9, id=old, kernel_id="k"))
    kernel = setup.kernel
    assert (kernel.state, kernel.request.gpu, kernel.workload) == ("granted", 2.0, new)
    assert kernel.pending_change is None


@in_event_loop
async def test_a_refused_change_leaves_everything_as_it_was():
    setup = Setup()
    await setup.request(HALF)
    await setup.request(DOUBLE)
    before = setup.kernel
    setup.scheduler.error = Conflict("3 GPUs requested, but the largest node has 2", field="gpu")
    with pytest.raises(Conflict, match="largest node"):
        await setup.request(KernelRequest(gpu=3))
    assert setup.kernel == before
    assert before.workload in setup.scheduler.workloads


@in_event_loop
async def test_the_current_request_again_cancels_the_change():
    setup = Setup()
    await setup.request(HALF)
    await setup.request(DOUBLE)
    new = setup.kernel.pending_change.workload
    await setup.request(HALF)
    await setup.until(lambda: new not in setup.scheduler.workloads)
    assert setup.kernel.pending_change is None
    assert setup.kernel.workload in setup.scheduler.workloads


@in_event_loop
async def test_cancelling_a_change_keeps_the_share():
    setup = Setup()
    await setup.request(HALF)
    await setup.request(DOUBLE)
    assert await setup.request(KernelRequest(gpu=4)) == (HALF, DOUBLE)
    new = setup.kernel.pending_change.workload
    await setup.submitter.cancel("k")
    await setup.until(lambda: new not in setup.scheduler.workloads)
    kernel = setup.kernel
    assert (kernel.state, kernel.request.gpu, kernel.pending_change) == ("granted", 0.5, None)
    with pytest.raises(Conflict, match="no pending request"):
        await setup.submitter.cancel("k")


@in_event_loop
async def test_cancelling_a_first_request_releases_it():
    setup = Setup()
    await setup.request(DOUBLE)
    assert setup.kernel.state == "pending"
    await setup.submitter.cancel("k")
    assert setup.kernel.state == "detached"
    await setup.until(lambda: not setup.scheduler.workloads)


@in_event_loop
async def test_only_the_latest_change_counts():
    setup = Setup()
    await setup.request(HALF)
    old = setup.kernel.workload
    await setup.request(DOUBLE)
    await setup.request(KernelRequest(gpu=4))
    assert [one.replaces for one in setup.scheduler.submitted] == [None, old, old]
    assert setup.kernel.pending_change.request.gpu == 4.0
    await setup.request(KernelRequest(gpu=4))
    assert len(setup.scheduler.submitted) == 3


@in_event_loop
async def test_a_pending_request_is_replaced_at_once():
    setup = Setup()
    await setup.request(DOUBLE)
    old = setup.kernel.workload
    await setup.request(KernelRequest(gpu=3))
    kernel = setup.kernel
    assert (kernel.state, kernel.request.gpu, kernel.pending_change) == ("pending", 3.0, None)
    assert old not in setup.scheduler.workloads


@in_event_loop
async def test_release_ends_the_share_and_the_change():
    setup = Setup()
    await setup.request(HALF)
    await setup.request(DOUBLE)
    await setup.submitter.release("k")
    await setup.until(lambda: not setup.scheduler.workloads)
    assert (setup.kernel.state, setup.kernel.pending_change) == ("detached", None)


@in_event_loop
async def test_a_change_without_answer_is_withdrawn():
    setup = Setup()
    await setup.request(HALF)
    old = setup.kernel.workload
    setup.scheduler.error = Unavailable("no answer")
    with pytest.raises(Unavailable):
        await setup.request(DOUBLE)
    await setup.until(lambda: setup.kernel.pending_change is None)
    assert setup.kernel.workload == old
    assert list(setup.scheduler.workloads) == [old]


@in_event_loop
async def test_a_change_without_answer_that_was_granted_is_kept():
    setup = Setup()
    await setup.request(HALF)
    submit = setup.scheduler._submit

    def lost_answer(request):
        submit(request)
        raise Unavailable("no answer")

    setup.scheduler._submit = lost_answer
    with pytest.raises(Unavailable):
        await setup.request(WHOLE)
    await setup.until(lambda: setup.kernel.request.gpu == 1.0)
    assert list(setup.scheduler.workloads) == [setup.kernel.workload]


@in_event_loop
async def test_the_share_ends_before_the_change_is_granted():
    """For example by a time limit: the change is an ordinary pending request then."""
    setup = Setup()
    await setup.request(HALF)
    old = setup.kernel.workload
    await setup.request(DOUBLE)
    setup.registry.apply_frame(WorkloadGone(revision=9, id=old, kernel_id="k"))
    assert (setup.kernel.state, setup.kernel.request.gpu) == ("pending", 2.0)


@in_event_loop
async def test_a_change_that_ended_is_no_longer_pending():
    setup = Setup()
    await setup.request(HALF)
    await setup.request(DOUBLE)
    new = setup.kernel.pending_change.workload
    setup.registry.apply_frame(WorkloadGone(revision=9, id=new, kernel_id="k"))
    assert (setup.kernel.state, setup.kernel.request.gpu) == ("granted", 0.5)
    assert setup.kernel.pending_change is None


@in_event_loop
async def test_the_complete_state_without_the_change():
    setup = Setup()
    await setup.request(HALF)
    await setup.request(DOUBLE)
    old = setup.scheduler.workloads[setup.kernel.workload]
    setup.registry.apply_frame(state(9, old))
    assert (setup.kernel.state, setup.kernel.pending_change) == ("granted", None)


@in_event_loop
async def test_a_change_that_is_released_before_its_answer_is_ended():
    setup = Setup()
    await setup.request(HALF)
    arrived, answer = asyncio.Event(), asyncio.Event()
    setup.transport.before_answer = lambda: delay(arrived, answer)
    request = asyncio.create_task(setup.request(WHOLE))
    await arrived.wait()
    setup.transport.before_answer = no_delay
    await setup.submitter.release("k")
    answer.set()
    await request
    await setup.until(lambda: not setup.scheduler.workloads)
    assert (setup.kernel.state, setup.kernel.pending_change) == ("detached", None)


@in_event_loop
async def test_a_refused_change_after_one_without_answer_leaves_no_change():
    setup = Setup()
    await setup.request(HALF)
    setup.scheduler.error = Unavailable("no answer")
    with pytest.raises(Unavailable):
        await setup.request(DOUBLE)
    setup.scheduler.error = Conflict("over the limit")
    with pytest.raises(Conflict):
        await setup.request(WHOLE)
    assert setup.kernel.pending_change is None


@in_event_loop
@pytest.mark.parametrize(
    ("code", "shown"), [("NeverFits", "NeverFits"), ("conflict", "InvalidRequest")]
)
async def test_a_kernelspecs_request_that_is_refused_shows_the_schedulers_code(code, shown):
    setup = Setup()
    setup.scheduler.error = error_of(ErrorDetail(code=code, message="the largest node has 2"), 409)
    setup.submitter.note("k", KernelRequest(gpu=3))
    setup.submitter.submit_noted("k")
    await setup.until(lambda: setup.kernel.state == "detached")
    reason = setup.kernel.reason
    assert (reason.code, reason.message) == (shown, "the largest node has 2")
    assert setup.registry.request_state("k").refuses == "the largest node has 2"


async def delay(arrived: asyncio.Event, answer: asyncio.Event) -> None:
    arrived.set()
    await answer.wait()


async def no_delay() -> None:
    """Answers arrive at once."""
