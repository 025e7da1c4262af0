"""Leadership; longer ids of leases (SQLite does not enforce lengths)."""

from __future__ import annotations

import sqlalchemy as sql
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "leadership",
        sql.Column("id", sql.Integer, primary_key=True, autoincrement=False),
        sql.Column("epoch", sql.BigInteger, nullable=False),
        sql.Column("holder", sql.Text, nullable=False),
        sql.Column("url", sql.Text, nullable=False),
        sql.Column("renewed_ms", sql.BigInteger, nullable=False),
    )
    for table, column in (("leases", "id"), ("usage", "lease")):
        with op.batch_alter_table(table) as batch:
            batch.alter_column(
                column,
                type_=sql.String(1100),
                existing_type=sql.String(200),
                existing_nullable=False,
            )
