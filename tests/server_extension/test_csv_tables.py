"""Tables as CSV."""

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
    Workloads,
    WorkloadView,
)
from jupyter_gpushare.server_extension.services.csv_tables import as_csv

AMOUNTS = {"quota": 1, "limit": None, "fair_share": 1.5, "allocated": 0.5, "requested": 2}
ROW = QueueRow(queue="vision", kind="project", pool="default", resource="gpu", **AMOUNTS)


def test_one_line_per_row_with_the_columns_in_the_wanted_order():
    assert (
        as_csv(Queues(queues=[ROW]), ["fair_share", "queue", "limit"])
        == "fair_share,queue,limit\n1.5,vision,\n"
    )


def test_without_rows_there_is_a_header():
    assert (
        as_csv(Queues(queues=[]), None)
        == "queue,kind,pool,resource,quota,limit,fair_share,allocated,requested\n"
    )


def test_an_unknown_column_is_named():
    with pytest.raises(InvalidInput, match="'colour'") as refused:
        as_csv(Queues(queues=[]), ["colour"])
    assert refused.value.field == "columns"


def test_words_are_joined_and_what_is_deeper_is_json():
    device = DeviceRow(uuid="u", model="m", memory_mib=DeviceMemory(total=1, guaranteed=0, used=0))
    node = NodeRow(
        name="n", pool="p", status="Ready", tiers=["observe", "suspend"], devices=[device]
    )
    text = as_csv(Nodes(nodes=[node]), ["tiers", "devices"])
    assert text.splitlines()[1].startswith('observe;suspend,"[{""uuid"":""u""')


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
        as_csv(table, ["id", "reason.code", "request.gpu"])
        == "id,reason.code,request.gpu\nw,WaitingForQuota,0.5\nx,,0.5\n"
    )
    assert (
        as_csv(table, ["pods.lease.node", "pods.lease.planned_gpus"]).splitlines()[1:]
        == ['n1;n2,"[[0],[0]]"'] * 2
    )
    for unknown in ("pods.lease.moon", "reason.colour", "id.code", "reason.code.length"):
        with pytest.raises(InvalidInput):
            as_csv(table, [unknown])
