"""The audit log, and cordoned and draining nodes."""

from __future__ import annotations

import sqlalchemy as sql
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "audit",
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
    op.create_table(
        "node_marks",
        sql.Column("name", sql.String(1000), primary_key=True),
        sql.Column("cordoned", sql.Boolean, nullable=False),
        sql.Column("draining", sql.Boolean, nullable=False),
        sql.Column("actor", sql.String(1000), nullable=False),
        sql.Column("since_ms", sql.BigInteger, nullable=False),
    )
