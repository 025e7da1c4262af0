"""Every metric that operators rely on is there with its labels, says what is so, and the dashboard
asks for no other.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from jupyter_gpushare import messages as m
from tests.scheduler.agents import FakeAgent
from tests.scheduler.running_server import RunningServer, asking, open_server

QUEUE = {"queue", "kind", "pool", "resource"}
PROMISED = {
    **{
        f"gpushare_queue_{name}": ("gauge", QUEUE)
        for name in ("quota", "limit", "fair_share", "allocated", "requested")
    },
    "gpushare_workloads": ("gauge", {"state", "reason", "pool"}),
    "gpushare_cycle_seconds": ("histogram", {"action"}),
    "gpushare_sync_seconds": ("histogram", set()),
    "gpushare_loop_lag_seconds": ("histogram", set()),
    "gpushare_evictions": ("counter", {"action"}),
    "gpushare_grant_wait_seconds": ("histogram", set()),
    "gpushare_lease_memory_bytes": ("gauge", {"kind"}),
    "gpushare_gate_wait_seconds": ("histogram", set()),
    "gpushare_reclaims": ("counter", {"rung"}),
    "gpushare_suspend_seconds": ("histogram", set()),
    "gpushare_resume_seconds": ("histogram", set()),
    "gpushare_node_ready": ("gauge", {"node", "reason"}),
    "gpushare_agent_tier": ("gauge", {"node", "tier"}),
    "process_cpu_seconds": ("counter", set()),
    "process_resident_memory_bytes": ("gauge", set()),
    "process_open_fds": ("gauge", set()),
    "process_start_time_seconds": ("gauge", set()),
}
DASHBOARD = Path(__file__).parents[2] / "docs/examples/grafana-dashboard.json"


async def scraped(running: RunningServer) -> dict[str, Any]:
    text = (await running.raw("GET", "/metrics")).body.decode()
    return {family.name: family for family in text_string_to_metric_families(text)}


def value(families: dict[str, Any], name: str, **labels: str) -> float | None:
    """Of one series; None: there is none."""
    samples = [
        sample
        for family in families.values()
        for sample in family.samples
        if sample.name == name and sample.labels == labels
    ]
    return samples[0].value if samples else None


@pytest.fixture(scope="module")
def after_a_day(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What is scraped when something of everything has happened."""

    async def story() -> dict[str, Any]:
        async with open_server(tmp_path_factory.mktemp("server")) as running:
            agent = FakeAgent()
            async with agent.linked(running.admin) as link:
                gang = m.WorkloadRequest(
                    id="gang",
                    min_pods=2,
                    pods=[m.PodRequest(name=str(i), gpu=0.5) for i in range(2)],
                )
                await running.of("alice").submit(gang)
                await agent.until(lambda: len(agent.holds) == 2)
                await running.of("bob").submit(asking("b", 1))
                await running.of("bob").submit(asking("c", 1))
                await agent.until(
                    lambda: any(held.workload == "b" for held in agent.holds.values())
                )
                lease = next(held for held in agent.holds.values() if held.workload == "b")
                memory = m.MemoryMib(guaranteed=1024, used=1536, borrowed=512)
                await link.send(
                    m.LeaseChanged(
                        report=m.LeaseReport(lease=lease.id, state="attached", memory_mib=memory)
                    )
                )
                took = {"gate_waits_ms": [2000], "suspends_ms": [100, 300], "resumes_ms": [50]}
                await link.send(
                    m.UsageReport(
                        since_ms=5000,
                        rows=[],
                        rungs={"caches": 2, "notice": 1, "of tomorrow": 3},
                        **took,
                    )
                )
                await link.send(
                    m.WorkloadRequeued(workload="nobody")
                )  # answered in order: what was said before is taken now
                async with asyncio.timeout(60):
                    while not value(
                        found := await scraped(running), "gpushare_resume_seconds_count"
                    ):
                        await asyncio.sleep(0.05)
                return found

    return asyncio.run(story())


@pytest.mark.parametrize("name", PROMISED)
def test_every_promised_metric_is_there_with_its_labels(
    after_a_day: dict[str, Any], name: str
) -> None:
    kind, labels = PROMISED[name]
    family = after_a_day[name]
    assert family.type == kind
    assert family.documentation
    assert family.samples
    assert {frozenset(set(sample.labels) - {"le"}) for sample in family.samples} == {
        frozenset(labels)
    }


TRUE = {
    "a quota": (
        1,
        "gpushare_queue_quota",
        {"queue": "vision", "kind": "project", "pool": "default", "resource": "gpu"},
    ),
    "no limit": (
        float("inf"),
        "gpushare_queue_limit",
        {"queue": "vision", "kind": "project", "pool": "default", "resource": "gpu"},
    ),
    "a fair share": (
        1,
        "gpushare_queue_fair_share",
        {"queue": "vision", "kind": "project", "pool": "default", "resource": "gpu"},
    ),
    "allocated": (
        2,
        "gpushare_queue_allocated",
        {"queue": "research", "kind": "department", "pool": "default", "resource": "gpu"},
    ),
    "requested": (
        2,
        "gpushare_queue_requested",
        {"queue": "language", "kind": "project", "pool": "default", "resource": "gpu"},
    ),
    "who runs": (2, "gpushare_workloads", {"state": "running", "reason": "", "pool": "default"}),
    "people with a GPU": (1, "gpushare_people", {"project": "language", "state": "holding"}),
    "a gang's first grant counts once": (2, "gpushare_grant_wait_seconds_count", {}),
    "nobody was evicted": (0, "gpushare_evictions_total", {"action": "reclaim"}),
    "used": (1536 << 20, "gpushare_lease_memory_bytes", {"kind": "used"}),
    "borrowed": (512 << 20, "gpushare_lease_memory_bytes", {"kind": "borrowed"}),
    "gate": (2, "gpushare_gate_wait_seconds_sum", {}),
    "copies out": (2, "gpushare_suspend_seconds_count", {}),
    "copies in": (0.05, "gpushare_resume_seconds_sum", {}),
    "a rung": (2, "gpushare_reclaims_total", {"rung": "caches"}),
    "a rung that was not used": (0, "gpushare_reclaims_total", {"rung": "killed"}),
    "a rung that we do not know": (None, "gpushare_reclaims_total", {"rung": "of tomorrow"}),
    "ready": (1, "gpushare_node_ready", {"node": "n0", "reason": ""}),
    "a tier": (1, "gpushare_agent_tier", {"node": "n0", "tier": "suspend"}),
    "a tier that it lacks": (None, "gpushare_agent_tier", {"node": "n0", "tier": "relocate"}),
}


@pytest.mark.parametrize(("expected", "name", "labels"), TRUE.values(), ids=TRUE)
def test_it_says_what_is_so(
    after_a_day: dict[str, Any], expected: float | None, name: str, labels: dict[str, str]
) -> None:
    assert value(after_a_day, name, **labels) == expected


def test_pending_workloads_are_counted_by_their_published_reason(
    after_a_day: dict[str, Any],
) -> None:
    (waiting,) = [
        sample
        for sample in after_a_day["gpushare_workloads"].samples
        if sample.labels["state"] == "pending"
    ]
    assert (waiting.value, waiting.labels["reason"] != "") == (1, True)


def queried(node: object) -> Iterator[str]:
    """Every expression of a dashboard, wherever it stands."""
    if isinstance(node, dict):
        for key, inner in node.items():
            if key in ("expr", "definition") and isinstance(inner, str):
                yield inner
            else:
                yield from queried(inner)
    elif isinstance(node, list):
        for inner in node:
            yield from queried(inner)


def test_the_dashboard_can_be_imported_and_asks_only_for_what_there_is(
    after_a_day: dict[str, Any],
) -> None:
    board = json.loads(DASHBOARD.read_text())
    assert board["schemaVersion"] >= 36
    assert board["templating"]["list"][0]["type"] == "datasource"
    panels = [panel for panel in board["panels"] if panel["type"] != "row"]
    assert len({panel["id"] for panel in board["panels"]}) == len(board["panels"])
    assert all(panel["datasource"]["uid"] == "${datasource}" for panel in panels)
    assert all(
        target["datasource"]["uid"] == "${datasource}"
        for panel in panels
        for target in panel["targets"]
    )
    exported = {sample.name for family in after_a_day.values() for sample in family.samples}
    labels = {
        name: set(sample.labels)
        for family in after_a_day.values()
        for sample in family.samples
        if (name := sample.name)
    }
    asked = list(queried(board))
    assert len(asked) > 20
    for expression in asked:
        names = set(re.findall(r"\b(?:gpushare|process)_[a-z_]+", expression))
        assert names <= exported, expression
        for name, matchers in re.findall(
            r"\b((?:gpushare|process)_[a-z_]+)\{([^}]*)\}", expression
        ):
            assert set(re.findall(r"(\w+)=", matchers)) <= labels[name] | {"job", "instance"}, (
                expression
            )
        for grouped in re.findall(r"by \(([^)]*)\)", expression):
            assert {label.strip() for label in grouped.split(",")} <= set().union(
                *(labels[name] for name in names)
            ), expression
    missing = {name for name in PROMISED if name.startswith("gpushare_")} - {
        re.sub(r"_(total|bucket|count|sum)$", "", name)
        for expression in asked
        for name in re.findall(r"\bgpushare_[a-z_]+", expression)
    }
    assert not missing, "a metric that nobody sees"


def test_the_pages_name_every_metric_and_their_examples_can_be_read() -> None:
    table = (DASHBOARD.parents[1] / "reference/metrics.md").read_text()
    page = (DASHBOARD.parents[1] / "how-to/observability.md").read_text()
    for name in PROMISED:
        assert f"`{name}" in table or name.startswith("process_"), name
    examples = [yaml.safe_load(text) for text in re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)]
    assert examples[0]["scrape_configs"][0]["static_configs"]
    asked = [rule["expr"] for rule in examples[1]["groups"][0]["rules"]]
    names = {name for expression in asked for name in re.findall(r"gpushare_[a-z_]+", expression)}
    assert {re.sub("_total$", "", name) for name in names} <= set(PROMISED)
