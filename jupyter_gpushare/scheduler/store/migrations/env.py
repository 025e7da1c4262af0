"""Run by Alembic on the connection of `store.database`, inside its locks and transaction."""

from __future__ import annotations

from alembic import context

from jupyter_gpushare.scheduler.store.schema import metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    render_as_batch=True,  # SQLite cannot change a column in place
)
with context.begin_transaction():
    context.run_migrations()
