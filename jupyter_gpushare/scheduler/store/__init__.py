"""SQL.

`schema` has the tables, `store` and `transaction` read and write them, `database` opens a database
and applies `migrations`. `locks` and `leadership` make sure that one scheduler writes,
`group_commit` syncs many commits at once, `integrity_check` verifies a database, `past_waits` reads
how long earlier requests waited.
"""
