"""What is kept: the tables as the program of today wants them, and the rows as values. `migrations`
makes older databases so.

Change a table here and add a file to `migrations/versions`, in one commit;
tests/scheduler/test_migrations.py fails while they differ.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import sqlalchemy as sql

from jupyter_gpushare import messages as m

__all__ = [
    "LeaseRow",
    "WorkloadOutcome",
    "StoredState",
    "TokenRow",
    "WorkloadRow",
    "audit",
    "events",
    "facts",
    "history",
    "leadership",
    "leases",
    "logs",
    "metadata",
    "node_marks",
    "nodes",
    "outcomes",
    "tokens",
    "usage",
    "usage_hours",
    "usage_taken",
    "workloads",
]

LONGEST_LEASE: Final = 1100
"""Characters of a lease's id: its workload's (up to 1000) and a few of its own."""

metadata = sql.MetaData()
facts = sql.Table(
    "meta",
    metadata,
    sql.Column("key", sql.String(64), primary_key=True),
    sql.Column("value", sql.Text, nullable=False),
)
workloads = sql.Table(
    "workloads",
    metadata,
    sql.Column("id", sql.String(1000), primary_key=True),
    sql.Column("request", sql.Text, nullable=False),
    sql.Column("user", sql.String(1000), nullable=False),
    sql.Column("project", sql.String(1000), nullable=False, index=True),
    sql.Column("priority", sql.Integer, nullable=False),
    sql.Column("preemptible", sql.Boolean, nullable=False),
    sql.Column("kernel_id", sql.String(1000), index=True),
    sql.Column("created_ms", sql.BigInteger, nullable=False),
    sql.Column("ended_ms", sql.BigInteger, index=True),
    sql.Column("message", sql.Text, nullable=False, default=""),
)
leases = sql.Table(
    "leases",
    metadata,
    sql.Column("id", sql.String(LONGEST_LEASE), primary_key=True),
    sql.Column("workload", sql.String(1000), nullable=False, index=True),
    sql.Column("body", sql.Text, nullable=False),
    sql.Column("started_ms", sql.BigInteger, nullable=False),
    sql.Column("ended_ms", sql.BigInteger, index=True),
)
events = sql.Table(
    "events",
    metadata,
    sql.Column(
        "number",
        sql.BigInteger().with_variant(sql.Integer, "sqlite"),
        primary_key=True,
        autoincrement=True,
    ),
    sql.Column("workload", sql.String(1000), nullable=False, index=True),
    sql.Column("time", sql.String(64), nullable=False),
    sql.Column("kind", sql.String(32), nullable=False),
    sql.Column("message", sql.Text, nullable=False),
)
nodes = sql.Table(
    "nodes",
    metadata,
    sql.Column("name", sql.String(1000), primary_key=True),
    sql.Column("report", sql.Text, nullable=False),
)
usage = sql.Table(
    "usage",
    metadata,
    sql.Column("lease", sql.String(LONGEST_LEASE), primary_key=True),
    sql.Column("project", sql.String(1000), nullable=False, index=True),
    sql.Column("held_ms", sql.BigInteger, nullable=False),
    sql.Column("busy_ms", sql.BigInteger, nullable=False),
    sql.Column("used_mib_ms", sql.BigInteger, nullable=False),
    sql.Column("borrowed_mib_ms", sql.BigInteger, nullable=False),
)
tokens = sql.Table(
    "tokens",
    metadata,
    sql.Column("id", sql.String(64), primary_key=True),
    sql.Column("scope", sql.String(16), nullable=False),
    sql.Column("name", sql.String(1000), nullable=False),
    sql.Column("hash", sql.String(64), nullable=False, unique=True),
    sql.Column("created_ms", sql.BigInteger, nullable=False),
    sql.Column("expires_ms", sql.BigInteger),
    sql.Column("revoked_ms", sql.BigInteger),
    sql.Column("users", sql.Text, nullable=False, server_default=""),
    sql.Column("groups", sql.Text, nullable=False, server_default=""),
)
leadership = sql.Table(
    "leadership",
    metadata,
    sql.Column("id", sql.Integer, primary_key=True, autoincrement=False),
    sql.Column("epoch", sql.BigInteger, nullable=False),
    sql.Column("holder", sql.Text, nullable=False),
    sql.Column("url", sql.Text, nullable=False),
    sql.Column("renewed_ms", sql.BigInteger, nullable=False),
)
"""One row: who may commit. The epoch grows with every new leader, and is never given twice."""
audit = sql.Table(
    "audit",
    metadata,
    sql.Column(
        "number",
        sql.BigInteger().with_variant(sql.Integer, "sqlite"),
        primary_key=True,
        autoincrement=True,
    ),
    sql.Column("time_ms", sql.BigInteger, nullable=False, index=True),
    sql.Column("actor", sql.String(1000), nullable=False),
    sql.Column("action", sql.String(64), nullable=False),
    sql.Column("object", sql.Text, nullable=False),
    sql.Column("detail", sql.Text, nullable=False),
)
node_marks = sql.Table(
    "node_marks",
    metadata,
    sql.Column("name", sql.String(1000), primary_key=True),
    sql.Column("cordoned", sql.Boolean, nullable=False),
    sql.Column("draining", sql.Boolean, nullable=False),
    sql.Column("actor", sql.String(1000), nullable=False),
    sql.Column("since_ms", sql.BigInteger, nullable=False),
)
history = sql.Table(
    "history",
    metadata,
    sql.Column(
        "number",
        sql.BigInteger().with_variant(sql.Integer, "sqlite"),
        primary_key=True,
        autoincrement=True,
    ),
    sql.Column("kind", sql.String(16), nullable=False),
    sql.Column("time_ms", sql.BigInteger, nullable=False, index=True),
    sql.Column("body", sql.Text, nullable=False),
)
usage_taken = sql.Table(
    "usage_taken",
    metadata,
    sql.Column("node", sql.String(1000), primary_key=True),
    sql.Column("life", sql.String(64), nullable=False),
    sql.Column("number", sql.BigInteger, nullable=False),
)
"""Which report of each node's agent was counted last."""
usage_hours = sql.Table(
    "usage_hours",
    metadata,
    sql.Column("key", sql.String(64), primary_key=True),
    sql.Column("hour_ms", sql.BigInteger, nullable=False, index=True),
    sql.Column("project", sql.String(1000), nullable=False),
    sql.Column("user", sql.String(1000), nullable=False),
    sql.Column("notebook", sql.String(1000), nullable=False),
    sql.Column("held", sql.BigInteger, nullable=False),
    sql.Column("used", sql.BigInteger, nullable=False),
    sql.Column("borrowed", sql.BigInteger, nullable=False),
    sql.Column("lent", sql.BigInteger, nullable=False),
)
"""GPU-ms per hour, project, person and notebook; the key is a hash of these four, which together
are too long for an index.
"""
outcomes = sql.Table(
    "outcomes",
    metadata,
    sql.Column(
        "number",
        sql.BigInteger().with_variant(sql.Integer, "sqlite"),
        primary_key=True,
        autoincrement=True,
    ),
    sql.Column("workload", sql.String(1000), nullable=False, index=True),
    sql.Column("pod", sql.String(1000), nullable=False),
    sql.Column("exit_code", sql.Integer, nullable=False),
    sql.Column("ended_ms", sql.BigInteger, nullable=False),
)
logs = sql.Table(
    "logs",
    metadata,
    sql.Column(
        "number",
        sql.BigInteger().with_variant(sql.Integer, "sqlite"),
        primary_key=True,
        autoincrement=True,
    ),
    sql.Column("workload", sql.String(1000), nullable=False, index=True),
    sql.Column("lease", sql.String(LONGEST_LEASE), nullable=False, index=True),
    sql.Column("pod", sql.String(1000), nullable=False),
    sql.Column("stop", sql.BigInteger, nullable=False),
    sql.Column("text", sql.Text, nullable=False),
)


@dataclass(frozen=True, slots=True)
class WorkloadRow:
    """A workload as it was asked for, and what the policy of that day made of it; times in ms."""

    request: m.WorkloadRequest
    user: str
    project: str
    priority: int
    preemptible: bool
    created_ms: int


@dataclass(frozen=True, slots=True)
class LeaseRow:
    body: m.LeaseBody
    started_ms: int


@dataclass(frozen=True, slots=True)
class WorkloadOutcome:
    """Batch work that is over: when (ms), how, and the exit code of each pod's command that ended
    by itself.
    """

    row: WorkloadRow
    ended_ms: int
    message: str
    exits: dict[str, int]


@dataclass(frozen=True, slots=True)
class TokenRow:
    """A token without its secret: only the hash is kept."""

    id: str
    scope: str
    name: str
    hash: str
    created_ms: int
    expires_ms: int | None = None
    revoked_ms: int | None = None
    users: str = ""
    """JSON list: on whose behalf a server may ask; "": everybody's."""
    groups: str = ""
    """JSON list: groups of a person, beside those that the configuration says."""


@dataclass(frozen=True, slots=True)
class StoredState:
    """Everything that a restarted service begins with."""

    revision: int
    workloads: list[WorkloadRow]
    leases: list[LeaseRow]
    nodes: list[m.NodeReport]
    events: dict[str, list[m.Event]]
    exits: dict[str, dict[str, int]]
    """Workload -> pod -> exit code of its command, of pods that are over."""
