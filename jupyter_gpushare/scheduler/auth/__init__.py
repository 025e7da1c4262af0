"""Who is asking, what they may do, and how much of it.

`recognising` asks three witnesses in turn: our own tokens (`identity`), JupyterHub (`hub`), the operating system (`peers`). The result is one
`Identity`; `access` is the table of what it reaches, `visibility` reads that table, `limits` counts. Called by `doors` and `links` on every
call, by `service` for what a person may see.
"""
