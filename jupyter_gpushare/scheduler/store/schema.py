"""The tables in their current version, and their rows as values.

Every change here needs a file in `migrations/versions`; tests/scheduler/test_migrations.py compares
both.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import sqlalchemy as sql

from jupyter_gpushare import messages as m

__all__ = [
    "FeedRow",
    "booking_feeds",
    "StoredBooking",
    "LeaseRow",
    "MemberLimitRow",
    "PersonUsageRow",
    "WorkloadOutcome",
    "StoredState",
    "StoredNode",
    "TokenRow",
    "WorkloadRow",
    "audit",
    "bookings",
    "events",
    "facts",
    "given_back",
    "history",
    "leadership",
    "leases",
    "logs",
    "member_limits",
    "metadata",
    "node_marks",
    "nodes",
    "outcomes",
    "person_usage",
    "tokens",
    "usage",
    "usage_hours",
    "usage_taken",
    "workloads",
]

LONGEST_LEASE: Final = 1100
"""Characters of a lease id: the id of its workload (up to 1000) and a suffix."""

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
    sql.Column("promoted_ms", sql.BigInteger),
)
"""`promoted_ms`: since when it has the next turn in its project; null: it has not."""
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
"""One row: the leader. The epoch grows with every new leader."""
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
"""The last counted usage report of each agent."""
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
"""GPU-ms per hour, project, person and notebook. The key is a hash of these four, which are too
long for an index.
"""
person_usage = sql.Table(
    "person_usage",
    metadata,
    sql.Column("key", sql.String(64), primary_key=True),
    sql.Column("project", sql.String(1000), nullable=False),
    sql.Column("pool", sql.String(1000), nullable=False),
    sql.Column("user", sql.String(1000), nullable=False),
    sql.Column("used", sql.BigInteger, nullable=False),
    sql.Column("at_ms", sql.BigInteger, nullable=False),
    sql.Column("served_ms", sql.BigInteger),
)
"""What people have used (milli-GPU-ms, decayed until `at_ms`), for the order between the members of
a project. The key is a hash of project, pool and user, which are too long for an index.
"""
member_limits = sql.Table(
    "member_limits",
    metadata,
    sql.Column("key", sql.String(64), primary_key=True),
    sql.Column("project", sql.String(1000), nullable=False),
    sql.Column("user", sql.String(1000), nullable=False),
    sql.Column("gpu", sql.Integer),
    sql.Column("notebooks", sql.Integer),
    sql.Column("pending", sql.Integer),
)
"""Limits that a project's managers set for single people; `gpu` in milli-GPU. The key is a hash of
project and user.
"""
bookings = sql.Table(
    "bookings",
    metadata,
    sql.Column("id", sql.String(1000), primary_key=True),
    sql.Column("request", sql.Text, nullable=False),
    sql.Column("user", sql.String(1000), nullable=False),
    sql.Column("created_ms", sql.BigInteger, nullable=False),
    sql.Column("ended_ms", sql.BigInteger, index=True),
)
"""What people have booked. `ended_ms`: when it was cancelled, or the end of its last time."""
given_back = sql.Table(
    "given_back",
    metadata,
    sql.Column("key", sql.String(64), primary_key=True),
    sql.Column("booking", sql.String(1000), nullable=False),
    sql.Column("start_ms", sql.BigInteger, nullable=False, index=True),
)
"""Times of bookings that nobody used. The key is a hash of both columns."""
booking_feeds = sql.Table(
    "booking_feeds",
    metadata,
    sql.Column("key", sql.String(64), primary_key=True),
    sql.Column("user", sql.String(1000), nullable=False),
    sql.Column("groups", sql.Text, nullable=False),
    sql.Column("hash", sql.String(64), nullable=False, unique=True),
    sql.Column("created_ms", sql.BigInteger, nullable=False),
)  # secret addresses at which calendar programs read bookings; the key is a hash of the user
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
    """A workload: its request, and priority and project at submission; times in ms."""

    request: m.WorkloadRequest
    user: str
    project: str
    priority: int
    preemptible: bool
    created_ms: int
    is_promoted: bool = False
    """Whether it has the next turn in its project."""


@dataclass(frozen=True, slots=True)
class PersonUsageRow:
    """What a person has used of a pool in a project; see the table."""

    project: str
    pool: str
    user: str
    used: int
    at_ms: int
    served_ms: int | None


@dataclass(frozen=True, slots=True)
class MemberLimitRow:
    """Limits of one person; None: unlimited."""

    project: str
    user: str
    gpu: int | None
    notebooks: int | None
    pending: int | None


@dataclass(frozen=True, slots=True)
class StoredBooking:
    """A booking that has not ended; `who` and `source` of its request are set."""

    request: m.BookingRequest
    user: str
    created_ms: int


@dataclass(frozen=True, slots=True)
class FeedRow:
    """An address without its secret. `groups`: the user's when it was made, a JSON list."""

    user: str
    groups: str
    hash: str
    created_ms: int


@dataclass(frozen=True, slots=True)
class LeaseRow:
    """A lease and its start in ms."""

    body: m.LeaseBody
    started_ms: int


@dataclass(frozen=True, slots=True)
class WorkloadOutcome:
    """An ended batch workload: when (ms), how, and the exit codes of commands that exited."""

    row: WorkloadRow
    ended_ms: int
    message: str
    exits: dict[str, int]


@dataclass(frozen=True, slots=True)
class TokenRow:
    """A token without its secret, of which only the hash is stored."""

    id: str
    scope: str
    name: str
    hash: str
    created_ms: int
    expires_ms: int | None = None
    revoked_ms: int | None = None
    users: str = ""
    """JSON list of the users for whom a server may act; "": all."""
    groups: str = ""
    """JSON list of groups of a person, in addition to configured ones."""


@dataclass(frozen=True, slots=True)
class StoredNode:
    """A node: its agent's last report, and the labels of the platform (Kubernetes); None: it is
    not one of the platform's nodes. The labels are a field of the report's JSON.
    """

    report: m.NodeReport
    platform_labels: dict[str, str] | None


@dataclass(frozen=True, slots=True)
class StoredState:
    """Everything that has not ended, for a restarted service."""

    revision: int
    workloads: list[WorkloadRow]
    leases: list[LeaseRow]
    nodes: list[StoredNode]
    events: dict[str, list[m.Event]]
    exits: dict[str, dict[str, int]]
    """Workload -> pod -> exit code of its command, for ended pods."""
    people: list[PersonUsageRow]
    limits: list[MemberLimitRow]
    bookings: list[StoredBooking]
    given_back: list[tuple[str, int]]
    """Booking and start (ms)."""
