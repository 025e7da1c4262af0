"""A cell waits for a GPU, and its user decides not to wait: the cell is refused, or it runs without
a GPU if the user says so. It never runs silently without one.
"""

from __future__ import annotations

from jupyter_gpushare.messages import KernelActionDone, KernelActionRequest, Share
from tests.agent.simulated_node import GIB, World, play

HALF = 40 * GIB


async def waiting_cell(world: World):
    """A kernel with a cell that waits for a GPU, and the position of its output."""
    a = await world.server.launch("a")
    world.server.report_request("a", True, request=Share(gpu=0.5))
    mark = a.start("result = 1")
    await a.hear("waits", mark)
    return a, mark


async def act(world: World, action: str) -> KernelActionDone:
    world.server.send(KernelActionRequest(n=7, kernel_id="a", action=action))
    answer = await world.server.answers.get()
    assert isinstance(answer, KernelActionDone)
    return answer


def test_a_cancelled_request_refuses_its_waiting_cells():
    async def story():
        async with World() as world:
            a, mark = await waiting_cell(world)
            world.server.report_request("a", False)
            error = (await a.hear("error", mark))["error"]
            assert "refused: the request for a GPU was cancelled" in error
            assert (await a.run("result = 2"))["result"] == 2, "later cells run without a GPU"

    play(story())


def test_a_request_that_was_cancelled_by_a_rule_refuses_with_its_reason():
    async def story():
        async with World() as world:
            a, mark = await waiting_cell(world)
            world.server.report_request("a", False, refuses="The request waited for 1 h.")
            assert "refused: The request waited for 1 h." in (await a.hear("error", mark))["error"]

    play(story())


def test_a_waiting_cell_runs_without_a_gpu_if_its_user_says_so():
    async def story():
        async with World() as world:
            a, mark = await waiting_cell(world)
            assert (await act(world, "run-without-gpu")).error is None
            done = await a.hear("done", mark)
            assert (done["result"], done["without_gpu"]) == (1, True)
            assert (await a.run("result = 2"))["result"] == 2, "later cells do not wait either"
            world.scheduler.grant("a", gpu=0, request=HALF)
            await world.attached("a")
            assert (await a.run("result = simgpu.memory_info()[1] > 0"))["result"] is True

    play(story())


def test_a_kernel_with_a_gpu_cannot_run_its_cells_without_one():
    async def story():
        async with World() as world:
            a = await world.server.launch("a")
            world.scheduler.grant("a", gpu=0, request=HALF)
            await world.attached("a")
            refused = await act(world, "run-without-gpu")
            assert refused.error is not None
            assert refused.error.code == "conflict"
            assert (await a.run("result = 1"))["without_gpu"] is False

    play(story())


def test_without_a_waiting_cell_later_cells_run_without_a_gpu():
    async def story():
        async with World() as world:
            a = await world.server.launch("a")
            world.server.report_request("a", True, request=Share(gpu=0.5))
            assert (await act(world, "run-without-gpu")).error is None
            assert (await a.run("result = 1"))["result"] == 1

    play(story())
