"""Whatever is sent: no answer is the service's own failure, every status is one that the OpenAPI
document names, nothing is booked twice.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from jupyter_gpushare import __version__
from jupyter_gpushare import messages as m
from jupyter_gpushare.routes import ROUTES, openapi
from jupyter_gpushare.scheduler.api.router import RouterResponse
from jupyter_gpushare.scheduler.auth.identity import Identity
from jupyter_gpushare.scheduler.policy.policy_file import parse_policy
from jupyter_gpushare.scheduler.server import SchedulerServer
from tests.example_counts import examples
from tests.scheduler.agents import MIB, node
from tests.scheduler.running_server import POLICY

DOCUMENT = openapi(__version__)["paths"]
PATHS = {route.name: route.path for route in ROUTES}

VALUES = [
    None,
    True,
    0,
    -1,
    0.5,
    1.5,
    -0.0,
    1e308,
    1e-320,
    7e9,
    2**63,
    2**70,
    -(2**70),
    "",
    "0",
    "²",
    "--5",
    "-5",
    "٣",
    "nan",
    "inf",
    "1e400",
    "½",
    "0x10",
    "1_000",
    "20GiB",
    "-1GiB",
    "1e5GiB",
    "9" * 5000,
    "GiB",
    "500m",
    "a" * 2000,
    "\x00",
    "💥",
    "../..",
    "a/b",
    "a@b",
    [],
    [1],
    {},
    {"a": 1},
    [None],
    ["default"],
    ["default", "default"],
    "unlimited",
    ["a"] * 100,
    "vision",
    "'; drop table --",
]
ODD = st.sampled_from(VALUES)
POD_FIELDS = [
    "name",
    "gpu",
    "gpu_memory",
    "gpu_devices",
    "gpu_limit",
    "cpu",
    "memory",
    "group",
    "nodes",
    "node_selector",
    "labels",
    "x",
]
FIELDS = [
    "id",
    "name",
    "kernel_id",
    "project",
    "priority_class",
    "preemptible",
    "min_pods",
    "node_pools",
    "user",
    "pods",
    "x",
]
NUMBER = iter(range(10**9))


@st.composite
def requests(draw: st.DrawFn) -> dict[str, Any]:
    """A good request with a few odd values in it."""
    pods = [
        {"name": f"p{i}", "gpu": draw(st.sampled_from([0.1, 0.5, 1]))}
        for i in range(draw(st.integers(1, 3)))
    ]
    body: dict[str, Any] = {"id": f"w{next(NUMBER)}", "pods": pods, "project": "vision"}
    for pod in pods:
        pod.update(draw(st.dictionaries(st.sampled_from(POD_FIELDS), ODD, max_size=1)))
        if pod.get("gpu_memory") is not None:
            pod.pop("gpu", None)
    return body | draw(st.dictionaries(st.sampled_from(FIELDS), ODD, max_size=1))


@pytest.fixture(scope="module")
def server(
    tmp_path_factory: pytest.TempPathFactory, module_db_url: str | None
) -> Iterator[SchedulerServer]:
    server = SchedulerServer(
        tmp_path_factory.mktemp("any"), policy=parse_policy(POLICY), db_url=module_db_url
    )
    server.service.agent_hello(m.AgentHello(version="1", node=node()), lambda order: None)
    yield server
    asyncio.run(server.stop())


def documented(route: str, verb: str, answer: RouterResponse) -> None:
    statuses = {int(status) for status in DOCUMENT[PATHS[route]][verb.lower()]["responses"]}
    assert answer.status in statuses - {503}, (answer.status, answer.body[:200])
    if answer.status != 200:
        assert json.loads(answer.body)["error"]["message"]


def call(
    server: SchedulerServer,
    route: str,
    verb: str,
    path: str | None = None,
    body: bytes | None = None,
    **query: str,
) -> RouterResponse:
    answer = server.router.handle(
        Identity("root", scope="admin"), verb, path or PATHS[route], query, body
    )
    documented(route, verb, answer)
    return answer


@pytest.mark.parametrize("field", [*FIELDS, *(f"pods.{field}" for field in POD_FIELDS)])
def test_any_value_of_a_field(server: SchedulerServer, field: str):
    """Each odd value in each field, alone."""
    for value in VALUES:
        body: dict[str, Any] = {"id": f"w{next(NUMBER)}", "pods": [{"gpu": 0.1}]}
        place, name = (body["pods"][0], field[5:]) if field.startswith("pods.") else (body, field)
        place[name] = value
        if name == "gpu_memory" and value is not None:
            del place["gpu"]
        for route in ("what_if", "submit"):
            answer = call(server, route, "POST", body=json.dumps(body).encode())
        server.service.run_cycle()
        if answer.status == 200:
            server.service.end(Identity("root", scope="admin"), json.loads(answer.body)["id"])


@settings(max_examples=examples(100), deadline=None, suppress_health_check=list(HealthCheck))
@given(body=requests(), route=st.sampled_from(["submit", "what_if"]))
def test_any_request(server: SchedulerServer, body: dict[str, Any], route: str):
    answer = call(server, route, "POST", body=json.dumps(body).encode())
    server.service.run_cycle()
    for device in range(2):
        leases = [
            lease
            for record in server.service.unit_of_work.records.values()
            for lease in record.leases.values()
            if device in lease.planned_gpus
        ]
        assert sum(lease.request_mib for lease in leases) <= MIB
    for table in ("workloads", "queues", "nodes", "pools", "projects", "snapshot"):
        assert call(server, table, "GET").status == 200
    if answer.status == 200 and len(server.service.unit_of_work.records) > 6:
        server.service.end(
            Identity("root", scope="admin"), next(iter(server.service.unit_of_work.records))
        )


@settings(max_examples=examples(150), deadline=None, suppress_health_check=list(HealthCheck))
@given(
    body=st.one_of(
        st.binary(max_size=40),
        st.recursive(ODD, lambda inner: st.lists(inner, max_size=3)).map(
            lambda v: json.dumps(v).encode()
        ),
    )
)
def test_any_body(server: SchedulerServer, body: bytes):
    for route in ("submit", "what_if", "create_token"):
        call(server, route, "POST", body=body)


@settings(max_examples=examples(150), deadline=None, suppress_health_check=list(HealthCheck))
@given(
    id_=st.text(min_size=1, max_size=20).filter(lambda text: "/" not in text),
    query=st.text(max_size=20),
)
def test_any_name(server: SchedulerServer, id_: str, query: str):
    call(server, "workload", "GET", f"/api/v1/workloads/{id_}")
    call(server, "end", "DELETE", f"/api/v1/workloads/{id_}")
    call(server, "revoke_token", "DELETE", f"/api/v1/tokens/{id_}")
    call(server, "workloads", "GET", project=query, kernel_id=query)
    call(server, "nodes", "GET", format="csv", columns=query)
    call(server, "queues", "GET", format=query)
