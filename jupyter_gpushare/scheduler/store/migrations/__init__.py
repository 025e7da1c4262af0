"""Alembic's environment, and the steps from older versions of the tables to the current one."""
