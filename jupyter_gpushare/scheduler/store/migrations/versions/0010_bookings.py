"""Bookings of people, and times of bookings that were given back."""

from __future__ import annotations

import sqlalchemy as sql
from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "bookings",
        sql.Column("id", sql.String(1000), primary_key=True),
        sql.Column("request", sql.Text, nullable=False),
        sql.Column("user", sql.String(1000), nullable=False),
        sql.Column("created_ms", sql.BigInteger, nullable=False),
        sql.Column("ended_ms", sql.BigInteger, index=True),
    )
    op.create_table(
        "given_back",
        sql.Column("key", sql.String(64), primary_key=True),
        sql.Column("booking", sql.String(1000), nullable=False),
        sql.Column("start_ms", sql.BigInteger, nullable=False, index=True),
    )
