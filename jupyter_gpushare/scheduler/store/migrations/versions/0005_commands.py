"""Batch workloads: output and exit codes of commands."""

from __future__ import annotations

import sqlalchemy as sql
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "outcomes",
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
    op.create_table(
        "logs",
        sql.Column(
            "number",
            sql.BigInteger().with_variant(sql.Integer, "sqlite"),
            primary_key=True,
            autoincrement=True,
        ),
        sql.Column("workload", sql.String(1000), nullable=False, index=True),
        sql.Column("lease", sql.String(1100), nullable=False, index=True),
        sql.Column("pod", sql.String(1000), nullable=False),
        sql.Column("stop", sql.BigInteger, nullable=False),
        sql.Column("text", sql.Text, nullable=False),
    )
