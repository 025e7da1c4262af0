"""Secret addresses of bookings as a calendar."""

from __future__ import annotations

import sqlalchemy as sql
from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "booking_feeds",
        sql.Column("key", sql.String(64), primary_key=True),
        sql.Column("user", sql.String(1000), nullable=False),
        sql.Column("groups", sql.Text, nullable=False),
        sql.Column("hash", sql.String(64), nullable=False, unique=True),
        sql.Column("created_ms", sql.BigInteger, nullable=False),
    )
