"""A lease is applied to a kernel only if the kernel was registered by the workload's user: kernel
ids are no secrets, and any user may submit a workload that names one.
"""

from __future__ import annotations

import pytest

from jupyter_gpushare.messages import (
    AgentHello,
    KernelRequestState,
    KernelsChanged,
    LeaseReleased,
    Share,
)
from node_agent.reconcile import leases
from tests.agent.shared_machine import Box, People, as_root, people
from tests.agent.simulated_node import GIB, World, play

__all__ = ["people"]

HALF = 40 * GIB


@pytest.fixture(autouse=True)
def short_proof(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leases, "PROOF_MS", 300)


def refused(world: World, lease: str) -> LeaseReleased | None:
    found = [body for body in world.scheduler.heard if isinstance(body, LeaseReleased)]
    return next((body for body in found if body.lease == lease), None)


def test_a_lease_of_another_user_changes_nothing_and_is_refused():
    async def story():
        async with World(gpus=1) as world:
            world.scheduler.grant("a", gpu=0, request=HALF, user="alice")
            a = await world.server.launch("a", user="alice")
            await world.attached("a")
            await a.run("held = simgpu.alloc('10GiB')")
            before = world.record("a").assignment

            world.scheduler.grant("a", gpu=0, request=GIB, lease="stolen", user="bob")
            body = await world.until(lambda: refused(world, "stolen"), "refused")
            assert body.ended
            assert body.message == (
                "Refused: kernel a on node n0 was not registered by user 'bob'. "
                "A workload can use only kernels of its own user."
            )
            assert world.record("a").assignment is before
            assert (before.lease.id, before.generation, before.attached) == ("a.1/kernel", 1, True)
            assert (await a.run("result = held.nbytes >> 30"))["result"] == 10
            assert not world.record("a").memory.suspended

    play(story())


def test_the_end_of_a_foreign_lease_leaves_cells_going_on():
    """Its user takes it back before it is refused: the owner's cells never wait for it."""

    async def story():
        async with World(gpus=1) as world:
            world.scheduler.grant("a", gpu=0, request=HALF, user="alice")
            a = await world.server.launch("a", user="alice")
            await world.attached("a")
            world.scheduler.grant("a", gpu=0, request=GIB, lease="stolen", user="bob")
            await world.until(lambda: world.agent.leases._unproven, "the lease is known")
            stolen = world.scheduler.leases.pop("stolen")
            world.scheduler.revoke(stolen.id)
            await world.until(lambda: not world.agent.leases._unproven, "it is forgotten")
            assert (await a.run("result = simgpu.memory_info()[1] >> 30"))["result"] == 80
            assert refused(world, "stolen") is None

    play(story())


def test_a_kernel_without_a_gpu_is_not_given_one_by_another_user():
    async def story():
        async with World(gpus=1) as world:
            a = await world.server.launch("a", user="alice", wants_gpu=False)
            world.scheduler.grant("a", gpu=0, request=HALF, user="bob")
            await world.until(lambda: refused(world, "a.1/kernel"), "refused")
            assert (await a.run("result = 1"))["result"] == 1
            assert world.record("a").lease is None

    play(story())


def test_a_lease_that_came_before_its_kernel_is_checked_when_that_is_registered():
    async def story():
        async with World(gpus=1) as world:
            world.scheduler.grant("a", gpu=0, request=HALF, user="bob")
            await world.until(lambda: world.record("a").lease, "it waits for its kernel")
            a = await world.server.launch("a", user="alice", wants_gpu=False)
            await world.until(lambda: refused(world, "a.1/kernel"), "refused")
            assert world.record("a").lease is None
            assert (await a.run("result = 1"))["result"] == 1

    play(story())


def test_a_personal_token_under_another_name_is_proven_by_the_kernels_own_server():
    """The server declares the workload, before or after the lease comes."""

    async def story():
        async with World(gpus=2) as world:
            for name, first in (("a", "lease"), ("b", "server")):
                state = KernelRequestState(
                    kernel_id=name, pending=False, workload=f"{name}.1", request=Share(gpu=0.5)
                )
                await world.server.launch(name, user="alice")
                if first == "server":
                    world.server.send(state)
                world.scheduler.grant(name, gpu=0, request=GIB, user="token-of-alice")
                if first == "lease":
                    await world.until(lambda: world.agent.leases._unproven, "it is not proven yet")
                    world.server.send(state)
                await world.attached(name)
            owners = {
                one.kernel_id: one.user
                for body in world.scheduler.heard
                if isinstance(body, KernelsChanged)
                for one in body.registered
            }
            assert owners == {"a": "token-of-alice", "b": "token-of-alice"}

    play(story())


def test_an_older_lease_is_in_force_again_when_the_one_that_replaced_it_ends():
    async def story():
        async with World(gpus=1) as world:
            world.scheduler.grant("a", gpu=0, request=HALF, user="alice")
            a = await world.server.launch("a", user="alice")
            await world.attached("a")
            world.scheduler.grant("a", gpu=0, request=GIB, lease="a.2/kernel", user="alice")
            await world.until(lambda: world.record("a").lease.id == "a.2/kernel", "replaced")
            del world.scheduler.leases["a.2/kernel"]
            world.scheduler.revoke("a.2/kernel")
            await world.until(lambda: world.record("a").lease.id == "a.1/kernel", "as before")
            await world.attached("a")
            assert (await a.run("result = simgpu.memory_info()[1] >> 30"))["result"] == 80

    play(story())


def test_a_plan_with_two_leases_of_one_kernel_keeps_the_current_one():
    async def story():
        async with World(gpus=1) as world:
            world.scheduler.grant("a", gpu=0, request=HALF, user="alice")
            await world.server.launch("a", user="alice")
            await world.attached("a")
            world.scheduler.grant("a", gpu=0, request=GIB, lease="a.2/kernel", user="alice")
            await world.until(lambda: world.record("a").lease.id == "a.2/kernel", "replaced")
            await world.attached("a")
            before = world.record("a").assignment
            world.scheduler.use()
            await world.until(lambda: world.scheduler.heard, "the plan has come")
            await (world.server.kernels["a"]).run("result = 1")
            assert world.record("a").assignment is before

    play(story())


@as_root
def test_the_scheduler_learns_whose_kernel_it_is(people: People):
    """On a machine whose users are known by the names of their accounts, before any lease."""

    async def story():
        async with Box(people) as box:
            await box.hers.launch("a", wants_gpu=False)
            owner = {"a": people.alice.pw_name}
            heard = box.scheduler.heard

            def changed() -> dict[str, str]:
                found = [
                    one
                    for body in heard
                    if isinstance(body, KernelsChanged)
                    for one in body.registered
                ]
                return {one.kernel_id: one.user for one in found}

            await box.until(lambda: changed() == owner, "reported at once")
            async with box.restarted():
                heard.clear()
            await box.until(
                lambda: (
                    [
                        {one.kernel_id: one.user for one in body.kernels}
                        for body in heard
                        if isinstance(body, AgentHello)
                    ]
                    == [owner]
                ),
                "and with every new link",
            )
            await box.hers.kernels["a"].end()
            await box.until(
                lambda: any(
                    body.gone == ["a"] for body in heard if isinstance(body, KernelsChanged)
                ),
                "and that it is gone",
                timeout=60,
            )

    play(story())
