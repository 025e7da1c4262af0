"""What an operator sees of two notebooks that share one GPU: metrics, usage, audit log and logs."""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.request

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.story.front_end import eventually
from tests.story.jupyter_process import Server

pytestmark = pytest.mark.slow
GIB = 1 << 30


def metrics(server: Server) -> dict[str, float]:
    """Series and their values."""
    with urllib.request.urlopen(
        f"http://127.0.0.1:{server.scheduler_port}/metrics", timeout=60
    ) as answer:
        families = text_string_to_metric_families(answer.read().decode())
    found = {}
    for family in families:
        for sample in family.samples:
            labels = ",".join(f"{name}={value}" for name, value in sorted(sample.labels.items()))
            name = sample.name.removeprefix("gpushare_")
            found[f"{name}{{{labels}}}" if labels else name] = sample.value
    return found


def gpushare(server: Server, *words: str) -> str:
    env = server.env | {"GPUSHARE_STATE": str(server.state)}
    done = subprocess.run(
        [sys.executable, "-m", "jupyter_gpushare.cli", *words],
        env=env,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done
    return done.stdout


def test_an_operator_sees_who_borrowed_waited_and_was_suspended(start_server):
    server = start_server(remote=True, gpus=1)
    first, second = server.notebook("half", "first.ipynb"), server.notebook("half", "second.ipynb")
    for notebook in (first, second):
        notebook.until("attached")
    first.ok("from jupyter_gpushare import simgpu; held = simgpu.alloc('70GiB')")
    eventually(
        lambda: metrics(server)["lease_memory_bytes{kind=borrowed}"] == 30 * GIB,
        "30 GiB above its share",
    )
    second.ok("from jupyter_gpushare import simgpu; held = simgpu.alloc('40GiB'); simgpu.busy(0.5)")
    second.ok("del held")
    first.ok("held.nbytes")

    def copied() -> bool:
        now = metrics(server)
        return bool(
            now["suspend_seconds_count"]
            and now["resume_seconds_count"]
            and now["reclaims_total{rung=suspended}"]
        )

    eventually(copied, "the copies are counted")
    now = metrics(server)
    assert now["grant_wait_seconds_count"] == 2
    assert now["gate_wait_seconds_count"] >= 2
    assert now["reclaims_total{rung=killed}"] == 0
    assert now["workloads{pool=default,reason=,state=running}"] == 2
    assert now["queue_allocated{kind=project,pool=default,queue=vision,resource=gpu}"] == 1
    (node,) = json.loads(gpushare(server, "nodes", "--json"))["nodes"]
    assert now[f"node_ready{{node={node['name']},reason=}}"] == 1
    assert {f"agent_tier{{node={node['name']},tier={tier}}}" for tier in node["tiers"]} <= set(now)
    eventually(
        lambda: (
            len(json.loads(gpushare(server, "usage", "--by", "notebook", "--json"))["usage"]) == 2
        ),
        "both have usage",
    )

    gpushare(server, "cordon", node["name"])
    eventually(
        lambda: (
            metrics(server).get(f"node_ready{{node={node['name']},reason=scheduling disabled}}")
            == 0
        ),
        "not ready, with the reason",
    )
    gpushare(server, "drain", node["name"], "--timeout", "60")
    eventually(
        lambda: metrics(server)["evictions_total{action=drain}"] == 2, "evictions are counted"
    )
    audit = gpushare(server, "audit", "--csv", "--columns", "action,object,detail")
    assert audit.count("evict,") == 2
    assert f"drain,node {node['name']}" in audit
    first.shut_down()
    second.shut_down()
    eventually(
        lambda: "workloads{pool=default,reason=,state=running}" not in metrics(server),
        "nothing runs",
    )
