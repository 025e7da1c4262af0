"""Tokens have the users of a server and the groups of a person."""

from __future__ import annotations

import sqlalchemy as sql
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("tokens", sql.Column("users", sql.Text, nullable=False, server_default=""))
    op.add_column("tokens", sql.Column("groups", sql.Text, nullable=False, server_default=""))
