"""What must not be forgotten, in SQL: tables (`schema`), transactions (`store`, `writing`), the `database` and the `migrations` of older ones.

And who may write: one process per file (`locks`), one `leadership` among several. `disk` says when it is there for good, `examination` whether it is
whole, `waits` what it says of past waits. Used by `books` and `service` through `store`; by the commands `db` and `token` directly. Decides nothing
about GPUs.
"""
