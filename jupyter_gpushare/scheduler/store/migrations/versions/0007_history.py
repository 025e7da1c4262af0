"""History: evictions, and samples of the queues."""

from __future__ import annotations

import sqlalchemy as sql
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "history",
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
