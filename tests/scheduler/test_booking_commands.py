"""`book`, `bookings` and `unbook` against a real scheduler with an agent on a real socket."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from jupyter_gpushare.cli.bookings import local_zone
from tests.scheduler.agents import FakeAgent
from tests.scheduler.running_server import open_server
from tests.scheduler.test_cli_commands import shell

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("on_both")]
POLICY = """
node_pools: [{name: default, bookable: {gpu: 1}}]
projects: [{name: course, managers: [teacher]}]
"""
DAY = (datetime.now(UTC) + timedelta(days=30)).strftime("%Y-%m-%d")
ONE = ("--project", "course", "--gpu", 1, "--for", "2h")
LAB = (*ONE, "--from", f"{DAY} 14:00", "--time-zone", "Asia/Kathmandu")
OVERLAPPING = (*ONE, "--from", f"{DAY} 09:00", "--time-zone", "UTC")


def test_a_manager_books_lists_and_cancels(tmp_path: Path) -> None:
    async def story() -> None:
        async with open_server(tmp_path, policy=POLICY) as running:
            agent = FakeAgent(gpus=1)
            async with agent.linked(running.admin):
                teacher = running.token("teacher")
                free = await shell(running, "book", *LAB, "--dry-run", token=teacher)
                assert (free.status, free.stdout) == (0, "It fits.\n")
                made = await shell(running, "book", *LAB, token=teacher)
                assert made.status == 0, made
                id_ = made.stdout.split()[1].rstrip(":")
                assert made.stdout == (
                    f"Booked {id_}: 1 GPU in default for all members of course, from"
                    f" {DAY} 14:00 Asia/Kathmandu for 2 h. `jupyter gpushare unbook {id_}`"
                    " cancels it.\n"
                )
                listed = await shell(running, "bookings", "--json", token=teacher)
                (row,) = json.loads(listed.stdout)["bookings"]
                assert row["next_start"] == f"{DAY}T08:15:00.000+00:00"
                again = await shell(running, "book", *OVERLAPPING, "--dry-run", token=teacher)
                assert again.status == 1
                assert again.stdout == (
                    f"It does not fit from {DAY} 09:00 to {DAY} 10:15; the next free time is"
                    f" {DAY} 10:15 (UTC).\n"
                )
                refused = await shell(running, "book", *LAB, token=running.token("ada"))
                assert (refused.status, refused.stdout) == (1, "")
                assert "only managers book" in refused.stderr
                gone = await shell(running, "unbook", id_, token=teacher)
                assert gone.stdout == f"Booking {id_} is cancelled.\n"
                empty = await shell(running, "bookings", token=teacher)
                assert empty.stdout.strip() == "No bookings."

    asyncio.run(story())


@pytest.mark.parametrize(
    ("zone", "expected"),
    [("Europe/Berlin", "Europe/Berlin"), (":Asia/Kathmandu", "Asia/Kathmandu")],
)
def test_the_zone_of_the_machine_has_a_name(monkeypatch, zone: str, expected: str) -> None:
    monkeypatch.setenv("TZ", zone)
    assert local_zone() == expected
