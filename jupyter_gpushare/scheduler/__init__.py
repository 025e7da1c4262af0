"""The scheduler service: the only process that decides who may have what, for the whole cluster.

Read it from the outside in. A listener accepts a request, authenticates it and routes it to the
service, which updates state and database in one transaction. Each package imports only those below
it:

    app, embedded    the two programs: a process of its own; inside a Jupyter server
    app_config       options of the stand-alone process
    http             HTTP, WebSockets, unix sockets, and the address that a standby holds
    hub_integration  a scheduler whose users JupyterHub knows
    server           builds the service from its parts, starts and stops it
    api              routing, event stream and agent sessions, independent of the transport
    service          commands, agent reports and scheduling cycles
    auth             authentication, permissions and rate limits
    state            workloads, nodes, usage and history, changed together with the database
    store            SQL: tables, transactions, migrations, leader election
    simulation       scenarios, snapshots and fair share files
    policy           the administrator's policy file, and what a change of it would do
    config           files written by people: parsed with line numbers, validated, explained
    gc_tuning        when Python's garbage collector runs
"""
