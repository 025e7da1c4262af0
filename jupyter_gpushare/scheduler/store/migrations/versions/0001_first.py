"""The tables of version 0.1."""

from __future__ import annotations

import sqlalchemy as sql
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "meta",
        sql.Column("key", sql.String(64), primary_key=True),
        sql.Column("value", sql.Text, nullable=False),
    )
    op.create_table(
        "workloads",
        sql.Column("id", sql.String(1000), primary_key=True),
        sql.Column("request", sql.Text, nullable=False),
        sql.Column("user", sql.String(1000), nullable=False),
        sql.Column("project", sql.String(1000), nullable=False, index=True),
        sql.Column("priority", sql.Integer, nullable=False),
        sql.Column("preemptible", sql.Boolean, nullable=False),
        sql.Column("kernel_id", sql.String(1000), index=True),
        sql.Column("created_ms", sql.BigInteger, nullable=False),
        sql.Column("ended_ms", sql.BigInteger, index=True),
        sql.Column("message", sql.Text, nullable=False),
    )
    op.create_table(
        "leases",
        sql.Column("id", sql.String(200), primary_key=True),
        sql.Column("workload", sql.String(1000), nullable=False, index=True),
        sql.Column("body", sql.Text, nullable=False),
        sql.Column("started_ms", sql.BigInteger, nullable=False),
        sql.Column("ended_ms", sql.BigInteger, index=True),
    )
    op.create_table(
        "events",
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
    op.create_table(
        "nodes",
        sql.Column("name", sql.String(1000), primary_key=True),
        sql.Column("report", sql.Text, nullable=False),
    )
    op.create_table(
        "usage",
        sql.Column("lease", sql.String(200), primary_key=True),
        sql.Column("project", sql.String(1000), nullable=False, index=True),
        sql.Column("held_ms", sql.BigInteger, nullable=False),
        sql.Column("busy_ms", sql.BigInteger, nullable=False),
        sql.Column("used_mib_ms", sql.BigInteger, nullable=False),
        sql.Column("borrowed_mib_ms", sql.BigInteger, nullable=False),
    )
    op.create_table(
        "tokens",
        sql.Column("id", sql.String(64), primary_key=True),
        sql.Column("scope", sql.String(16), nullable=False),
        sql.Column("name", sql.String(1000), nullable=False),
        sql.Column("hash", sql.String(64), nullable=False, unique=True),
        sql.Column("created_ms", sql.BigInteger, nullable=False),
        sql.Column("expires_ms", sql.BigInteger),
        sql.Column("revoked_ms", sql.BigInteger),
    )
