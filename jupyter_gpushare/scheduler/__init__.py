"""The scheduler service: the only place that decides who may have what, for the whole cluster.

Read it from the outside in. A caller comes through a door, is recognised, and talks over a link with the service; the service writes in its
books, which the store keeps; the policy says what is allowed. Each room imports only those below it:

    `app`, `embedded`  the two programs: a process of its own; inside a Jupyter server
    `doors`            how callers get in: HTTP, WebSockets, sockets, a standby's address
    `with_hub`         a house whose people JupyterHub knows
    `house`            puts the service together, starts and stops it (`garbage`: when Python looks for what is no longer used)
    `links`            one conversation, whatever carries it: a call, a stream, an agent
    `service`          the one that says yes: people's commands, agents' reports, the cycle
    `callers`          who is asking, what they may do, how much
    `books`            what is known: workloads, nodes, usage, history; changed with the store or not at all
    `store`            SQL: tables, transactions, older databases, which scheduler leads
    `simulation`       the same decisions on paper: scenarios, snapshots, fair share files
    `policy`           the administrator's file, and what a change of it would do
    `files`            files that people write: read with line numbers, checked, explained
"""
