"""What must not be forgotten, in SQL: tables, transactions, the steps from older databases, and which of several schedulers may write.

Used by `books` and `service` through `store`; by the commands `db` and `token` directly. Decides nothing about GPUs.
"""
