"""The OpenAPI document and CSV tables over HTTP."""

from __future__ import annotations

import asyncio
import csv
import json
from pathlib import Path

from jupyter_gpushare import __version__
from jupyter_gpushare import messages as m
from jupyter_gpushare.routes import openapi
from tests.scheduler.running_server import open_server


def test_the_document_is_rendered_from_the_routes(tmp_path: Path):
    async def story():
        async with open_server(tmp_path) as running:
            assert json.loads((await running.raw("GET", "/api/v1/openapi.json")).body) == openapi(
                __version__
            )

    asyncio.run(story())


def test_csv_writes_what_a_node_lacks_when_it_is_asked_for():
    node = m.NodeRow(
        name="n",
        pool="default",
        status="Ready",
        tiers=["observe"],
        tier_problems={"limit": "too old", "suspend": "no driver"},
    )
    text = m.rows_as_csv([node], m.NodeRow, ["name", "tiers", "tier_problems"])
    ((_, _, problems),) = list(csv.reader(text.splitlines()))[1:]
    assert json.loads(problems) == node.tier_problems
    assert "tier_problems" not in m.rows_as_csv([node], m.NodeRow).splitlines()[0]


def test_csv_has_a_line_per_row_and_the_columns_that_were_asked_for(tmp_path: Path):
    async def story():
        async with open_server(tmp_path) as running:
            rows = (await running.admin.queues()).queues
            answer = await running.raw(
                "GET", "/api/v1/queues?format=csv&columns=resource,queue", None, running.admin_token
            )
            assert answer.headers["Content-Type"].startswith("text/csv")
            assert answer.body.decode().splitlines() == [
                "resource,queue",
                *(f"{row.resource},{row.queue}" for row in rows),
            ]
            whole = await running.raw(
                "GET", "/api/v1/projects?format=csv", None, running.admin_token
            )
            assert whole.body.decode().splitlines()[0] == ",".join(m.ProjectRow.__annotations__)

    asyncio.run(story())
