"""Tables as CSV: columns, cells, and text that a spreadsheet would execute."""

from __future__ import annotations

import msgspec
import pytest

from jupyter_gpushare.core.model.errors import InvalidInput
from jupyter_gpushare.messages import (
    DeviceMemory,
    DeviceRow,
    LeaseBody,
    NodeRow,
    Nodes,
    PodView,
    QueueRow,
    Queues,
    ReasonBody,
    Share,
    Waiting,
    WaitingRow,
    Workloads,
    WorkloadView,
    table_as_csv,
    values_as_csv,
)

AMOUNTS = {"quota": 1, "limit": None, "fair_share": 1.5, "allocated": 0.5, "requested": 2}
ROW = QueueRow(queue="vision", kind="project", pool="default", resource="gpu", **AMOUNTS)


def test_one_line_per_row_with_the_columns_in_the_wanted_order():
    assert (
        table_as_csv(Queues(queues=[ROW]), ["fair_share", "queue", "limit"])
        == "fair_share,queue,limit\n1.5,vision,unlimited\n"
    )


def test_without_rows_there_is_a_header():
    assert (
        table_as_csv(Queues(queues=[]), None)
        == "queue,kind,pool,resource,quota,limit,fair_share,allocated,requested\n"
    )


def test_an_unknown_column_is_named():
    with pytest.raises(InvalidInput, match="'colour'") as refused:
        table_as_csv(Queues(queues=[]), ["colour"])
    assert refused.value.field == "columns"


def test_null_is_unlimited_only_in_a_quota_or_limit():
    waiting = WaitingRow(
        position=1,
        pool="default",
        project="vision",
        priority=75,
        gpu=None,
        gpu_memory_mib=20480,
        since="2026-01-01T00:00:00.000+00:00",
        reason="",
    )
    text = table_as_csv(Waiting(waiting=[waiting]), ["gpu", "gpu_memory_mib", "expected_seconds"])
    assert text.splitlines()[1] == ",20480,"


def test_words_are_joined_and_deeper_values_are_json():
    device = DeviceRow(uuid="u", model="m", memory_mib=DeviceMemory(total=1, guaranteed=0, used=0))
    node = NodeRow(
        name="n", pool="p", status="Ready", tiers=["observe", "suspend"], devices=[device]
    )
    text = table_as_csv(Nodes(nodes=[node]), ["tiers", "devices"])
    assert text.splitlines()[1].startswith('observe;suspend,"[{""uuid"":""u""')
    assert "devices" not in table_as_csv(Nodes(nodes=[node])).splitlines()[0]


def test_a_body_in_a_field_gives_its_own_columns():
    header = table_as_csv(Workloads(workloads=[])).splitlines()[0].split(",")
    assert {"request.gpu", "limit.gpu_memory_mib", "reason.code"} <= set(header)
    assert "pods" not in header


@pytest.mark.parametrize("start", ["=", "+", "-", "@", "\t", "\r"])
def test_text_that_a_spreadsheet_would_execute_is_escaped(start):
    formula = f"{start}HYPERLINK(1)"
    _, line = values_as_csv(["a", "b"], [[formula, -1.5]]).split("\n", 1)
    assert line in (f"'{formula},-1.5\n", f'"\'{formula}",-1.5\n')


def test_numbers_keep_all_their_digits():
    assert values_as_csv(["a"], [[1234567.25], [2.0], [-3], [True]]) == (
        "a\n1234567.25\n2\n-3\nTrue\n"
    )


def lease(node):
    return LeaseBody(
        id="l",
        workload="w",
        pod="0",
        kernel_id=None,
        project="vision",
        node=node,
        pool="default",
        planned_gpus=[0],
        request_mib=1,
        limit_mib=1,
    )


def test_a_dot_goes_into_the_body_that_a_field_holds():
    reason = ReasonBody(code="WaitingForQuota", message="Project vision uses all of it.")
    row = WorkloadView(
        id="w",
        name="a.ipynb",
        kernel_id=None,
        user="me",
        project="vision",
        priority=75,
        preemptible=True,
        node_pools=[],
        created="2026-01-01T00:00:00.000+00:00",
        state="pending",
        request=Share(gpu=0.5),
        reason=reason,
    )
    pods = [
        PodView(name="0", state="running", lease=lease("n1")),
        PodView(name="1", state="pending"),
        PodView(name="2", state="running", lease=lease("n2")),
    ]
    row = msgspec.structs.replace(row, pods=pods)
    table = Workloads(workloads=[row, msgspec.structs.replace(row, id="x", reason=None)])
    assert (
        table_as_csv(table, ["id", "reason.code", "request.gpu"])
        == "id,reason.code,request.gpu\nw,WaitingForQuota,0.5\nx,,0.5\n"
    )
    assert (
        table_as_csv(table, ["pods.lease.node", "pods.lease.planned_gpus"]).splitlines()[1:]
        == ['n1;n2,"[[0],[0]]"'] * 2
    )
    for unknown in ("pods.lease.moon", "reason.colour", "id.code", "reason.code.length"):
        with pytest.raises(InvalidInput):
            table_as_csv(table, [unknown])
