"""People of a project: what they have used, their limits, and workloads with the next turn."""

from __future__ import annotations

import sqlalchemy as sql
from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("workloads", sql.Column("promoted_ms", sql.BigInteger))
    op.create_table(
        "person_usage",
        sql.Column("key", sql.String(64), primary_key=True),
        sql.Column("project", sql.String(1000), nullable=False),
        sql.Column("pool", sql.String(1000), nullable=False),
        sql.Column("user", sql.String(1000), nullable=False),
        sql.Column("used", sql.BigInteger, nullable=False),
        sql.Column("at_ms", sql.BigInteger, nullable=False),
        sql.Column("served_ms", sql.BigInteger),
    )
    op.create_table(
        "member_limits",
        sql.Column("key", sql.String(64), primary_key=True),
        sql.Column("project", sql.String(1000), nullable=False),
        sql.Column("user", sql.String(1000), nullable=False),
        sql.Column("gpu", sql.Integer),
        sql.Column("notebooks", sql.Integer),
        sql.Column("pending", sql.Integer),
    )
