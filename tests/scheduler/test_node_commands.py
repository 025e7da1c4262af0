"""`cordon`, `drain`, `uncordon` and `policy diff` against a real scheduler with an agent on a real
socket; and who may not.
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from jupyter_gpushare.scheduler.policy.policy_file import parse_policy
from tests.scheduler.agents import FakeAgent
from tests.scheduler.running_server import asking, open_server
from tests.scheduler.test_cli_commands import shell

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("on_both")]
LESS = "projects: [{name: vision, pools: {default: {gpu: {quota: 0}}}}]\n"


def test_an_admin_takes_a_node_out_of_service_and_back(tmp_path: Path) -> None:
    async def story() -> None:
        async with open_server(tmp_path) as running:
            agent = FakeAgent(gpus=1)
            async with agent.linked(running.admin):
                await running.of("alice").submit(asking("a"))
                await agent.until(lambda: agent.holds)
                assert (
                    await shell(running, "cordon", "n0")
                ).stdout == "Node n0 accepts no new workloads; 1 lease remains on it.\n"
                refused = await shell(running, "drain", "n0", token=running.token("alice"))
                assert (refused.status, len(refused.stderr.splitlines())) == (1, 1)
                assert agent.holds
                drained = await shell(running, "drain", "n0", "--timeout", 30)
                assert drained.status == 0, drained
                assert drained.stdout.splitlines()[-1] == "Node n0 is drained."
                assert not agent.holds
                (row,) = json.loads((await shell(running, "nodes", "--json")).stdout)["nodes"]
                assert (row["status"], row["reasons"], row["cordoned"]) == (
                    "Not ready",
                    ["scheduling disabled"],
                    True,
                )
                metrics = (await running.raw("GET", "/metrics")).body.decode()
                assert 'gpushare_node_ready{node="n0",reason="scheduling disabled"} 0.0' in metrics
                assert 'gpushare_evictions_total{action="drain"} 1.0' in metrics
                (row,) = (await running.admin.evictions()).evictions
                assert (row.action, row.workload, row.node, row.by) == ("drain", "a", "n0", "")
                assert (
                    json.loads((await shell(running, "uncordon", "n0", "--json")).stdout)[
                        "cordoned"
                    ]
                    is False
                )
                await agent.until(lambda: agent.holds)
                unknown = await shell(running, "cordon", "n9")
                assert (unknown.status, unknown.stdout) == (1, "")
                assert "unknown node 'n9'" in unknown.stderr

    asyncio.run(story())


def test_what_a_policy_would_change_is_asked_of_the_running_scheduler(tmp_path: Path) -> None:
    async def story() -> None:
        async with open_server(tmp_path) as running:
            agent = FakeAgent(gpus=1)
            async with agent.linked(running.admin):
                await running.of("alice").submit(asking("a"))
                await agent.until(lambda: agent.holds)
                file = tmp_path / "less.yaml"
                file.write_text(LESS)
                said = await shell(running, "policy", "diff", file)
                assert said.status == 0, said
                assert "vision: GPU quota in default 1 -> 0" in said.stdout
                assert (
                    "affected: project vision: GPU quota in default 1 -> 0; uses 0.5: "
                    "0.5 GPU becomes reclaimable by others [a]" in said.stdout
                )
                assert (await shell(running, "validate", file, "--dry-run")).stdout == said.stdout
                refused = await shell(running, "policy", "diff", file, token=running.token("bob"))
                assert (refused.status, refused.stdout) == (1, "")
                file.write_text("projects: 5")
                assert (await shell(running, "policy", "diff", file)).status == 2
                assert agent.holds, "asking changes nothing"
                running.server.service.use_policy(parse_policy(LESS))
                line = "vision: GPU quota in default 1 -> 0"
                assert any(
                    text.startswith("policy changed ") and text.endswith(line)
                    for text in (await shell(running, "status")).stdout.splitlines()
                )

    asyncio.run(story())
