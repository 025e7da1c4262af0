"""One user's large requests: budgets of pods, rate limits by size and time, turns, and costs."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType

import pytest

from jupyter_gpushare import messages as m
from jupyter_gpushare.core.model.errors import Conflict, GpuShareError, InvalidInput
from jupyter_gpushare.scheduler.auth.identity import Identity
from jupyter_gpushare.scheduler.auth.rate_limits import (
    GENEROUS,
    CallTurns,
    RateLimited,
    RateLimits,
    TokenBuckets,
)
from jupyter_gpushare.scheduler.http import handlers
from jupyter_gpushare.scheduler.policy.policy_file import parse_policy
from jupyter_gpushare.scheduler.service.output_budget import OutputBudget
from jupyter_gpushare.scheduler.service.pod_budget import PodBudget
from jupyter_gpushare.scheduler.service.service import SchedulerService
from jupyter_gpushare.scheduler.store.store import Store
from tests.scheduler.running_server import open_server
from tests.scheduler.scheduler_harness import ALICE, Listener, SchedulerHarness

BOB = Identity("bob", (), "person")
POLICY = parse_policy("projects: [{name: p}]")


def gang(id_: str, pods: int, gpu: object = 1, **more: object) -> m.WorkloadRequest:
    return m.WorkloadRequest(id=id_, pods=[m.PodRequest(gpu=gpu)] * pods, **more)


def limited(folder: Path, most: int) -> SchedulerService:
    store = Store(f"sqlite:///{folder}/s.sqlite")
    return SchedulerService(store, POLICY, Listener(), clock=lambda: 1, pod_budget=PodBudget(most))


def test_pending_pods_of_one_user_are_limited(tmp_path: Path):
    service = limited(tmp_path, 10)
    service.submit(ALICE, gang("a", 6))
    with pytest.raises(Conflict) as refused:
        service.submit(ALICE, gang("b", 5))
    assert (refused.value.code, refused.value.field) == ("too-many-pending", "pods")
    assert refused.value.message == (
        "too many pods: 6 of user 'alice' are pending or run without a GPU, "
        "5 more are requested, and at most 10 are allowed"
    )
    service.submit(ALICE, gang("c", 4))
    service.submit(ALICE, gang("c", 4))  # repeated: nothing more is pending
    service.submit(BOB, gang("d", 10))  # each user has an own budget
    service.end(ALICE, "a")
    service.submit(ALICE, gang("e", 6))
    service.unit_of_work.store.close()


def test_pods_with_gpus_are_not_pending(tmp_path: Path):
    scheduler = SchedulerHarness(f"sqlite:///{tmp_path}/s.sqlite").joined()
    scheduler.service.commands.pod_budget = PodBudget(2)
    for id_ in "ab":
        scheduler.ask(id_, 1)
    for id_ in "cd":
        assert scheduler.ask(id_, 1).state == "pending"
    with pytest.raises(Conflict):
        scheduler.ask("e", 1)
    scheduler.close()


def test_pods_without_gpus_are_counted_while_they_run(tmp_path: Path):
    scheduler = SchedulerHarness(f"sqlite:///{tmp_path}/s.sqlite").joined()
    scheduler.service.commands.pod_budget = PodBudget(2)
    for id_ in "ab":
        assert scheduler.ask(id_, 0).state == "running"
    with pytest.raises(Conflict):
        scheduler.ask("c", 0)
    scheduler.service.end(ALICE, "a")
    scheduler.ask("c", 0)
    scheduler.close()


def test_a_workload_has_a_limited_number_of_pods(tmp_path: Path):
    service = limited(tmp_path, 0)
    service.commands.pod_budget = PodBudget(per_workload=3)
    service.submit(ALICE, gang("a", 3))
    for call in (service.submit, service.what_if):
        with pytest.raises(InvalidInput) as refused:
            call(ALICE, gang("b", 4))
        assert (refused.value.code, refused.value.field) == ("too-many-pods", "pods")
        assert refused.value.message == (
            "a workload has at most 3 pods, got 4: submit several workloads"
        )
    service.unit_of_work.store.close()


def test_a_grant_of_many_pods_is_one_event_per_node(tmp_path: Path):
    scheduler = SchedulerHarness(f"sqlite:///{tmp_path}/s.sqlite").joined()
    scheduler.service.submit(ALICE, gang("a", 30, gpu=0.01))
    scheduler.service.run_cycle()
    texts = [event.message for event in scheduler.service.unit_of_work.records["a"].events]
    assert texts[1:] == ["Granted 30 pods of 0.01 GPU on n0."]
    scheduler.close()


def steps(call: Callable[[], object]) -> int:
    """Executed lines: a measure of time that does not depend on the machine."""
    count = 0

    def trace(frame: FrameType, event: str, _: object) -> Callable[..., object]:
        nonlocal count
        count += 1
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        call()
    finally:
        sys.settrace(before)
    return count


def different(id_: str, pods: int, gpu: object, min_pods: int | None) -> m.WorkloadRequest:
    each = [m.PodRequest(gpu=gpu, memory=f"{i + 1}MiB") for i in range(pods)]
    return m.WorkloadRequest(id=id_, pods=each, queue_anyway=True, min_pods=min_pods)


COSTS = {
    "waiting": (2, None),
    "waiting and elastic": (2, 1),
    "started": (0, None),
    "started and elastic": (0, 1),
    "small": (0.001, None),
}


@pytest.mark.parametrize(("gpu", "min_pods"), COSTS.values(), ids=COSTS)
def test_what_a_submission_costs(tmp_path: Path, gpu: object, min_pods: int | None):
    """Every step of the event loop that follows from it costs in proportion to its pods, and the
    largest one at most as much as a few hundred small ones.
    """
    scheduler = SchedulerHarness(f"sqlite:///{tmp_path}/s.sqlite").joined()
    service = scheduler.service

    def costs(pods: int) -> dict[str, int]:
        request = different(f"w{pods}", pods, gpu, min_pods)
        whole = {
            "what-if": steps(lambda: service.what_if(ALICE, request)),
            "submit": steps(lambda: service.submit(ALICE, request)),
            "cycle": steps(service.run_cycle),
            "publish": steps(lambda: list(service.pending_status.publish_changes())),
            "view": steps(lambda: service.queries.workload(ALICE, request.id)),
            "tick": steps(lambda: service.tick(scheduler.time)),
        }
        for lease in scheduler.leases():
            record = service.unit_of_work.records[request.id]
            whole["leases"] = whole.get("leases", 0) + steps(lambda: record.lease(lease.id))  # noqa: B023
        return whole | {"end": steps(lambda: service.end(ALICE, request.id))}

    costs(10)  # caches are filled
    one, some, many = costs(1), costs(100), costs(400)
    for step, cost in many.items():
        assert cost <= 5 * some[step] + 1000, f"{step} costs {some[step]}, then {cost}"
    largest = GENEROUS.pods_per_workload / 400
    assert max(many.values()) * largest <= 300 * sum(one.values()), (one, many)
    scheduler.close()


def test_calls_of_one_caller_take_turns_with_the_calls_of_others():
    ran: list[str] = []

    async def story() -> None:
        turns = CallTurns()

        async def call(caller: str) -> None:
            await turns.take(caller)
            ran.append(caller)

        async with asyncio.TaskGroup() as tasks:
            for _ in range(100):
                tasks.create_task(call("alice"))
            tasks.create_task(call("bob"))
            gone = tasks.create_task(call("alice"))
            await asyncio.sleep(0)
            gone.cancel()
        await asyncio.sleep(0)
        assert turns._waiting == {}

    asyncio.run(story())
    assert ran.index("bob") <= 1
    assert len(ran) == 101


def test_equal_pods_are_validated_as_single_ones(tmp_path: Path):
    service = limited(tmp_path, 0)
    pods = [m.PodRequest(gpu=1, name="a"), m.PodRequest(gpu=1, name="b", labels={"x": "y"})]
    pods += [m.PodRequest(gpu=1, name=name, labels={"x": "y"}) for name in "cd"]
    service.submit(ALICE, m.WorkloadRequest(id="w", pods=pods))
    read = service.unit_of_work.records["w"].workload.pods
    assert [(pod.name, dict(pod.labels)) for pod in read] == [
        ("a", {}),
        ("b", {"x": "y"}),
        ("c", {"x": "y"}),
        ("d", {"x": "y"}),
    ]
    bad = [*pods, m.PodRequest(gpu=-1, name="e"), m.PodRequest(gpu=-1, name="f")]
    with pytest.raises(InvalidInput) as refused:
        service.submit(ALICE, m.WorkloadRequest(id="v", pods=bad))
    assert refused.value.field == "pods[4].gpu"
    service.unit_of_work.store.close()


def test_a_large_call_counts_as_many():
    now = 0.0
    buckets = TokenBuckets(10.0, 20, clock=lambda: now)
    buckets.take("a")
    buckets.charge("a", 100)
    with pytest.raises(RateLimited) as refused:
        buckets.take("a")
    assert refused.value.after == 9, "81 calls too many, at 10 per second"
    buckets.take("b")
    now = 8.5
    buckets.take("a")


def test_long_calls_use_up_the_rate_of_their_caller_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(handlers, "S_PER_CALL", 1e-9)  # any call takes that long
    monkeypatch.setattr(handlers, "S_FREE", 0.0)
    limits = RateLimits(calls_per_s=0.001, calls_at_once=50)

    async def story() -> None:
        async with open_server(tmp_path, limits=limits) as running:
            token, bob = running.token("alice"), running.of("bob")
            codes = [
                (await running.raw("GET", "/api/v1/status", token=token)).code for _ in range(2)
            ]
            assert codes == [200, 429]
            assert (await bob.status()).user == "bob"

    asyncio.run(story())


def test_long_bodies_use_up_the_rate_of_their_caller_only(tmp_path: Path):
    limits = RateLimits(calls_per_s=0.001, calls_at_once=50)

    async def story() -> None:
        async with open_server(tmp_path, limits=limits) as running:
            token, bob = running.token("alice"), running.of("bob")
            try:
                await running.client(token).submit(gang("a", 5000, project="vision"))
            except GpuShareError as error:  # refused or not, it has cost
                assert not isinstance(error, RateLimited)
            answer = await running.raw("GET", "/api/v1/status", token=token)
            assert answer.code == 429
            assert (await bob.status()).user == "bob"

    asyncio.run(story())


def test_the_oldest_output_makes_room_for_new_output(tmp_path: Path):
    scheduler = SchedulerHarness(f"sqlite:///{tmp_path}/s.sqlite").joined()
    service = scheduler.service
    service.reports.commands._budget = OutputBudget(service.unit_of_work.store, 1000)

    def begin(id_: str) -> m.LeaseBody:
        request = gang(id_, 1, gpu=0.01, command=m.CommandRequest(argv=["true"], cwd="/"))
        service.submit(ALICE, request)
        service.run_cycle()
        (lease,) = service.unit_of_work.records[id_].leases.values()
        return lease

    def print_(lease: m.LeaseBody, start: int, size: int) -> None:
        chunk = m.LogChunk(lease=lease.id, start=start, stop=start + size, text="x" * size)
        service.agent_report("n0", chunk)
        assert scheduler.listener.orders[-1] == m.LogAcknowledged(lease=lease.id, stop=start + size)

    def output(id_: str) -> str:
        return "".join(line.text for line in service.queries.logs(ALICE, id_, None, None).lines)

    for number in range(5):
        print_(begin(f"c{number}"), 0, 400)
        if number < 4:
            service.end(ALICE, f"c{number}")
    sizes = [len(output(f"c{number}")) for number in range(5)]
    assert sizes == [0, 0, 0, 400, 400]
    last = service.unit_of_work.records["c4"].leases["0"]
    print_(last, 400, 500)
    assert (len(output("c3")), len(output("c4"))) == (0, 900)
    for start in (900, 1100):
        print_(last, start, 200)
    assert output("c4")[900:].count("[output dropped") == 1
    assert len(output("c4")) < 1000
    service.end(ALICE, "c4")
    scheduler.time += 60_000
    print_(begin("c5"), 0, 400)
    assert len(output("c5")) == 400
    scheduler.close()


def test_pods_without_a_gpu_have_a_budget_of_their_own(tmp_path: Path):
    service = limited(tmp_path, 0)
    service.commands.pod_budget = PodBudget(without_gpu=3)
    service.submit(ALICE, gang("a", 2, gpu=0))
    service.submit(ALICE, gang("b", 9, gpu=1, queue_anyway=True))
    with pytest.raises(Conflict, match="has 2, 2 more are requested, and at most 3 are allowed"):
        service.submit(ALICE, gang("c", 2, gpu=0))
    service.submit(ALICE, gang("d", 1, gpu=0))
    service.unit_of_work.store.close()
