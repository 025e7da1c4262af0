"""Run by Alembic: on the connection that `scheduler.store.database` opened (its locks, its
transaction), never on one of its own.
"""

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
