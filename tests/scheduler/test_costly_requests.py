"""One user's large requests: a budget of pending pods, and rate limits by size."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from jupyter_gpushare import messages as m
from jupyter_gpushare.core.model.errors import Conflict, GpuShareError, InvalidInput
from jupyter_gpushare.scheduler.auth.identity import Identity
from jupyter_gpushare.scheduler.auth.rate_limits import RateLimited, RateLimits, TokenBuckets
from jupyter_gpushare.scheduler.policy.policy_file import parse_policy
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
    return SchedulerService(store, POLICY, Listener(), clock=lambda: 1, pending_pods=most)


def test_pending_pods_of_one_user_are_limited(tmp_path: Path):
    service = limited(tmp_path, 10)
    service.submit(ALICE, gang("a", 6))
    with pytest.raises(Conflict) as refused:
        service.submit(ALICE, gang("b", 5))
    assert (refused.value.code, refused.value.field) == ("too-many-pending", "pods")
    assert refused.value.message == (
        "too many pending pods: 6 of user 'alice' are pending, 5 more are requested, "
        "and at most 10 are allowed"
    )
    service.submit(ALICE, gang("c", 4))
    service.submit(ALICE, gang("c", 4))  # repeated: nothing more is pending
    service.submit(BOB, gang("d", 10))  # each user has an own budget
    service.end(ALICE, "a")
    service.submit(ALICE, gang("e", 6))
    service.unit_of_work.store.close()


def test_pods_with_gpus_are_not_pending(tmp_path: Path):
    scheduler = SchedulerHarness(f"sqlite:///{tmp_path}/s.sqlite").joined()
    scheduler.service.commands.pending_pods = 2
    for id_ in "ab":
        scheduler.ask(id_, 1)
    for id_ in "cd":
        assert scheduler.ask(id_, 1).state == "pending"
    with pytest.raises(Conflict):
        scheduler.ask("e", 1)
    scheduler.close()


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
