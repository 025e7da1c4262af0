"""What a share that starts now would change for other notebooks, before it is requested."""

from __future__ import annotations

import os

import pytest

from jupyter_gpushare.messages import Share, StartPreviewed, StartPreviewRequest
from node_agent.system.process_owner import UnixUser
from tests.agent.simulated_node import GIB, World, play

pytestmark = pytest.mark.slow
HALF = 40 * GIB


async def preview(world: World, gpu: float, kernel_id: str = "") -> StartPreviewed:
    planned = world.agent.node.uuids[1:2]
    world.server.send(
        StartPreviewRequest(n=5, kernel_id=kernel_id, request=Share(gpu=gpu), planned_gpus=planned)
    )
    answer = await world.server.answers.get()
    assert isinstance(answer, StartPreviewed), answer
    return answer


async def two_borrowers(world: World) -> None:
    for name in "ab":
        await world.server.launch(name)
        world.scheduler.grant(name, gpu=0, request=HALF)
        await world.attached(name)
        await world.server.kernels[name].run("kept = simgpu.alloc('70GiB')")
    await world.until(
        lambda: all(world.record(name).memory.used_mib == 70 * GIB for name in "ab"),
        "the agent has measured that both borrow",
    )


def test_an_idle_notebook_is_named_with_what_happens_to_its_memory():
    async def story():
        async with World() as world:
            await two_borrowers(world)
            answer = await preview(world, 1)
            gpu = world.agent.node.uuids.index(answer.gpus[0])  # both GPUs hold the same amount
            (one,) = answer.affected
            name = ("a.ipynb", "b.ipynb")[gpu]
            assert (one.name, one.memory_mib, one.notice_ms) == (name, 70 * GIB, 0)
            assert one.message == (
                f"{name} is idle: 70 GiB of its GPU memory is saved to host memory and restored "
                f"on simulated GPU {1 - gpu} when it needs it."
            )
            assert world.used() == {0: 70 * GIB, 1: 70 * GIB}, "nothing was changed"
            assert world.record("a").assignment.assigned_gpus == (0,)

    play(story())


def test_running_notebooks_get_their_notice_first():
    async def story():
        async with World(notice_ms=8_000) as world:
            await two_borrowers(world)
            for name in "ab":
                world.server.kernels[name].start("time.sleep(20)")
            await world.until(
                lambda: world.record("a").gate.running and world.record("b").gate.running,
                "both run",
            )
            (one,) = (await preview(world, 1)).affected
            assert one.notice_ms == 8_000
            assert one.message.startswith("a.ipynb gets a notice of 8 s, then 70 GiB of its GPU")

    play(story())


def test_a_share_that_fits_affects_nobody():
    async def story():
        async with World() as world:
            answer = await preview(world, 1)
            assert len(answer.gpus) == 1
            assert answer.affected == []

    play(story())


def test_the_share_of_the_own_kernel_is_given_up():
    async def story():
        async with World() as world:
            await two_borrowers(world)
            answer = await preview(world, 1, "a")
            assert answer.gpus == [world.agent.node.uuids[0]]
            assert answer.affected == []

    play(story())


def test_notebooks_of_other_users_are_not_named():
    async def story():
        async with World() as world:
            await two_borrowers(world)
            world.record("a").registration.owner = UnixUser(os.getuid() + 1)
            (one,) = (await preview(world, 1)).affected
            assert one.name == "a notebook of project vision"
            assert one.message.startswith("A notebook of project vision is idle: ")

    play(story())
