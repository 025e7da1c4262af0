"""Alembic's environment and the steps from every older form of the database to today's. Shipped
with the program.
"""
