"""Files written by version 0.1.0 still open: database, agent journal and simulated node.

They were kept from `jupyter gpushare demo` of that version, killed with SIGKILL while four
notebooks ran: one suspended at its owner's request, one attached with 20 GiB in use, one pending,
one pinned.
"""

from __future__ import annotations

import asyncio
import json
import sqlite3
import subprocess
from contextlib import closing
from pathlib import Path

import pytest

from jupyter_gpushare.messages import LeaseBody, decode
from jupyter_gpushare.scheduler.policy.policy_file import load_policy
from jupyter_gpushare.scheduler.store.database import NEWEST, open_engine
from jupyter_gpushare.scheduler.store.integrity_check import problems_in
from node_agent.system.processes import MARKER, process_at
from tests.agent.simulated_node import World, play
from tests.scheduler.running_server import open_server

FILES = Path(__file__).with_name("version_0_1")
SUSPENDED = "91565f63-a1a4-41d6-8a30-0600bd398128"
ATTACHED = "2f7da0d0-2fc9-4085-b4b0-885dd2fd5471"
PENDING = "823f24c4-9e42-456d-b398-1f1b7be19f5f"
PINNED = "8f2bbcc4-1029-42a4-b965-a7ee7ce08c90"


def restore_database(script: str, file: Path) -> None:
    with closing(sqlite3.connect(file)) as connection:
        connection.executescript(script)


@pytest.fixture
def database(tmp_path: Path) -> Path:
    file = tmp_path / "state" / "scheduler.sqlite"
    file.parent.mkdir(mode=0o700)
    restore_database((FILES / "scheduler.sql").read_text(), file)
    return file


def test_the_scheduler_takes_over_workloads_leases_and_usage(tmp_path: Path, database: Path):
    async def story() -> None:
        policy = (FILES / "gpushare.yaml").read_text()
        async with open_server(tmp_path, policy=policy) as running:
            admin = running.admin
            workloads = {one.kernel_id: one for one in (await admin.workloads()).workloads}
            assert set(workloads) == {SUSPENDED, ATTACHED, PENDING, PINNED}
            assert workloads[SUSPENDED].state == workloads[ATTACHED].state == "running"
            assert workloads[PENDING].state == "pending"
            assert workloads[PENDING].reason is not None
            usage = await admin.usage()
            assert {row.project for row in usage.usage} == {"vision", "language"}
        engine = open_engine(f"sqlite:///{database}")
        assert problems_in(engine) == []
        engine.dispose()
        with closing(sqlite3.connect(database)) as connection:
            (version,) = connection.execute("SELECT version_num FROM alembic_version").fetchone()
        assert version == NEWEST

    asyncio.run(story())


def test_the_policy_file_is_accepted():
    loaded = load_policy(FILES / "gpushare.yaml")
    assert [one.name for one in loaded.policy.projects] == ["vision", "language", "course"]


class UpgradedNode(World):
    """An agent of today on the files of 0.1.0. Living processes take the place of the two kernels
    that had GPU memory.
    """

    def __init__(self) -> None:
        super().__init__(gpus=2)
        journal = json.loads((FILES / "agent.journal.json").read_text())
        script = (FILES / "simgpu.sql").read_text()
        self.processes = {}
        for kernel in journal["kernels"]:
            old = f"{kernel['pid']},{kernel['start']},"
            kernel["pid"], kernel["start"] = self._process(kernel["kernel_id"], kernel["launch"])
            script = script.replace(old, f"{kernel['pid']},{kernel['start']},")
        restore_database(renamed(script), self.state_dir / "simgpu.sqlite")
        text = renamed(json.dumps(journal))
        (self.state_dir / "agent.journal.json").write_text(text)
        leases = [kernel["lease"] for kernel in json.loads(text)["kernels"] if kernel["lease"]]
        bodies = [decode(LeaseBody, json.dumps(lease).encode()) for lease in leases]
        self.scheduler.leases = {body.id: body for body in bodies}

    def _process(self, kernel_id: str, launch: str) -> tuple[int, int]:
        """(pid, start time) of a process that carries the mark of this launch."""
        made = subprocess.Popen(["sleep", "60"], env={MARKER: launch})
        self.processes[kernel_id] = made
        found = process_at(made.pid)
        assert found is not None
        return found.pid, found.start

    async def __aexit__(self, *problem: object) -> None:
        await super().__aexit__(*problem)
        for process in self.processes.values():
            process.kill()
            process.wait()


def renamed(text: str) -> str:
    """The files come from a machine called `vm`, and a Jupyter server with a random name."""
    text = text.replace("SIM-GPU-vm-", "SIM-GPU-n0-").replace('"node": "vm"', '"node": "n0"')
    return text.replace("a1c87487ea2d61fe", "server-1")


def test_the_agent_finds_kernels_and_saved_memory_again():
    async def story() -> None:
        async with UpgradedNode() as node:
            reported = node.server.reported
            await node.until(lambda: len(reported) == 4, "all four kernels are reported")
            await node.until(lambda: reported[SUSPENDED].state == "suspended", "suspended")
            await node.until(lambda: reported[SUSPENDED].saved_mib == 10 * 1024, "saved memory")
            await node.until(lambda: reported[ATTACHED].state == "attached", "attached")
            await node.until(lambda: reported[ATTACHED].memory_mib.used == 20 * 1024, "used")
            await node.until(lambda: reported[PINNED].pinned, "pinned")
            assert all(process.poll() is None for process in node.processes.values())

    play(story())


def test_a_journal_that_cannot_be_read_is_set_aside():
    async def story() -> None:
        node = World(gpus=2)
        (node.state_dir / "agent.journal.json").write_text("{")
        async with node:
            assert (node.state_dir / "agent.journal.bad").read_text() == "{"

    play(story())
