"""Which caps a kernel on a real GPU receives, and when: before the cell that depends on them, and
never while its memory is saved.
"""

from __future__ import annotations

from jupyter_gpushare.messages import CellAllowed, KernelUpdate
from tests.agent.nvidia_node import GpuNode
from tests.agent.simulated_node import GIB, play


class Overheard(GpuNode):
    """Also keeps the messages to each kernel, in order."""

    def __init__(self, **more) -> None:
        super().__init__(**more)
        self.told: list[tuple[str, object]] = []

    async def start_agent(self) -> None:
        await super().start_agent()
        to_kernel = self.agent.socket_server.to_kernel
        self.agent.socket_server.to_kernel = lambda kernel_id, body: (
            self.told.append((kernel_id, body)) or to_kernel(kernel_id, body)
        )

    def to(self, name: str, *kinds: type) -> list:
        return [
            body for kernel_id, body in self.told if kernel_id == name and isinstance(body, kinds)
        ]


def test_a_cell_is_admitted_after_its_kernel_has_its_caps():
    async def story():
        async with Overheard() as world:
            a = await world.kernel("a", request=40 * GIB)
            b = await world.kernel("b", request=39 * GIB)
            assert "error" not in await a.run("p = gpu.alloc(60 << 30)")
            await world.until(
                lambda: world.to("b", KernelUpdate)[-1].cap_mib < 30 * GIB,
                "b receives the small cap that is left",
            )
            before = len(world.to("b", CellAllowed))
            await b.run("pass")
            said = world.to("b", KernelUpdate, CellAllowed)
            go = said.index(world.to("b", CellAllowed)[before])
            assert said[go - 1].devices[0].cap_mib >= 39 * GIB, (
                "its share, before the cell is admitted"
            )

    play(story())


def test_a_suspended_kernel_receives_no_caps():
    async def story():
        async with Overheard() as world:
            a = await world.kernel("a", request=40 * GIB)
            await a.run("p = gpu.alloc(10 << 30)")
            assert world.to("a", KernelUpdate)[-1].devices[0].visible == world.machine.uuids[0]
            mark = len(world.to("a", KernelUpdate))
            await a.ask("suspend")
            assert world.state(a) == "checkpointed"
            await world.until(
                lambda: world.to("a", KernelUpdate)[-1].kernel.state == "suspended",
                "it receives its state",
            )
            said = [body.devices for body in world.to("a", KernelUpdate)[mark:]]
            left = said.index([])  # before it, the end of its cell may have been sent
            assert said[left:] == [[]] * len(said[left:])

    play(story())
