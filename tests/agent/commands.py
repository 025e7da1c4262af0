"""Commands (batch work) on a simulated node: leases for them, and what is left of them."""

from __future__ import annotations

from pathlib import Path

from jupyter_gpushare.messages import CommandRequest, LeaseBody, LeaseReleased, Share
from tests.agent.simulated_node import GIB, World

HALF = 40 * GIB


def command_lease(
    id_: str = "w", *, user: str, argv: list[str], cwd: str = "/", env: dict[str, str] | None = None
) -> LeaseBody:
    """A lease of half a GPU with a command."""
    return LeaseBody(
        id=id_,
        workload=id_,
        pod="p",
        kernel_id=None,
        project="vision",
        node="n0",
        pool="default",
        planned_gpus=[0],
        request_mib=HALF,
        limit_mib=HALF,
        request=Share(gpu=0.5),
        user=user,
        command=CommandRequest(argv=argv, cwd=cwd, env=env or {}),
    )


async def finished(world: World, lease: LeaseBody) -> tuple[LeaseReleased, str]:
    """Run the command to its end: its last message, and its output."""
    world.scheduler.grant_again(lease)

    def released() -> LeaseReleased | None:
        found = [one for one in world.scheduler.heard if isinstance(one, LeaseReleased)]
        return next((one for one in found if one.lease == lease.id), None)

    body = await world.until(released, f"the end of {lease.id}", timeout=60)
    return body, world.scheduler.output(lease.id)


def marked_processes(workload: str) -> list[int]:
    """Living processes that carry the workload in their environment."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            environment = (folder / "environ").read_bytes().split(b"\0")
            state = (folder / "stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            continue
        if f"GPUSHARE_WORKLOAD={workload}".encode() in environment and state != "Z":
            found.append(int(folder.name))
    return found
