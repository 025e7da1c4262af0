"""GPU time per hour, project, person and notebook, for usage reports."""

from __future__ import annotations

import sqlalchemy as sql
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "usage_hours",
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
