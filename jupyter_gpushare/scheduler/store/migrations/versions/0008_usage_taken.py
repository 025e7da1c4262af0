"""The last counted usage report of each agent, so that repeated reports are counted once."""

from __future__ import annotations

import sqlalchemy as sql
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "usage_taken",
        sql.Column("node", sql.String(1000), primary_key=True),
        sql.Column("life", sql.String(64), nullable=False),
        sql.Column("number", sql.BigInteger, nullable=False),
    )
