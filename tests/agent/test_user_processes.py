"""Processes of unix users: which are ended with a command or a kernel, and which are left alone."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

from jupyter_gpushare.messages import CommandRequest, LeaseBody, Share
from node_agent.system.process_owner import UnixUser
from node_agent.system.processes import (
    ProcessId,
    foreign_descendants,
    kill_tree,
    process_at,
    tree_of,
)
from tests.agent.shared_machine import Box, People, as_root, people
from tests.agent.simulated_node import GIB, play

__all__ = ["people"]

HALF = 40 * GIB


@as_root
def test_her_command_ends_with_all_that_it_started(people: People):
    """Batch work as its own unix user: a child in a session of its own is hers as well."""

    async def story():
        async with Box(people) as box:
            command = CommandRequest(argv=["/bin/sh", "-c", "setsid sleep 61 & sleep 62"], cwd="/")
            body = LeaseBody(
                id="w",
                workload="w",
                pod="p",
                kernel_id=None,
                project="vision",
                node="n0",
                pool="default",
                planned_gpus=[0],
                request_mib=HALF,
                limit_mib=HALF,
                request=Share(gpu=0.5),
                user=people.alice.pw_name,
                command=command,
            )
            box.scheduler.grant_again(body)
            await box.until(
                lambda: len(commands_of(box)) == 3, "the command runs, with both that it started"
            )
            tree = commands_of(box)
            assert box.record("w").registration.owner == UnixUser(people.alice.pw_uid)
            box.agent.lifecycle.end_processes(box.record("w"))
            await box.until(
                lambda: not any(one.is_alive() for one in tree), "nothing is left of it"
            )
            await box.until(
                lambda: "w" not in box.agent.node.kernels, "its folders are gone as well"
            )

    def commands_of(box: Box) -> set[ProcessId]:
        kernel = box.record("w")
        sleepers = {
            one
            for one in tree_of(
                kernel.process.launch, kernel.process.main, kernel.registration.owner
            )
            if "sleep" in Path(f"/proc/{one.pid}/comm").read_text()
        }
        return sleepers | {kernel.process.main} if kernel.process.main else set()

    play(story())


CHANGED = """
import os, pwd, sys, time
child = os.fork()
if child == 0:
    time.sleep(60); os._exit(0)
user = pwd.getpwnam(sys.argv[1])
os.setgroups([]), os.setgid(user.pw_gid), os.setuid(user.pw_uid)
print(child, flush=True); time.sleep(60)
"""


@as_root
def test_who_became_another_user_is_left_alone(people: People):
    """As a kernel's `sudo` would be; here the other way round, for she may become nobody else."""
    env = os.environ | {"GPUSHARE_LAUNCH": "a.1"}
    with subprocess.Popen(
        [sys.executable, "-c", CHANGED, people.alice.pw_name],
        env=env,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        roots = process_at(int(process.stdout.readline()))
        main, alice = process_at(process.pid), UnixUser(people.alice.pw_uid)
        try:
            assert tree_of("a.1", main, alice) == {main}
            assert foreign_descendants("a.1", main, alice) == {roots}
            assert tree_of("a.1", main, UnixUser(people.bob.pw_uid)) == set()
            assert asyncio.run(kill_tree("a.1", main, UnixUser(people.bob.pw_uid)))
            assert main.is_alive()
            assert asyncio.run(kill_tree("a.1", main, alice))
            assert (main.is_alive(), roots.is_alive()) == (False, True)
        finally:
            os.kill(roots.pid, 9)
