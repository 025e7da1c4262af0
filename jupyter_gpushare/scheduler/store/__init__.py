"""The scheduler's database (SQLite or PostgreSQL).

`schema` has the tables, `store` opens and writes them through `transaction`, `reads` has the
queries, `retention` removes old rows. `database` opens a database and applies `migrations`. `locks`
and `leadership` ensure that one scheduler writes, `group_commit` syncs many commits at once,
`integrity_check` verifies a database, `past_waits` reads how long earlier requests waited.
"""
