"""What the scheduler knows: each workload, node and hour, and what was done. The `ledger` is the one way to change it: with the store, or not at all.

`requests` and `subgroups` turn what somebody asks for into the core's words; then there are `records` of workloads, the `fleet` of nodes, `accounts`
of GPU-hours, the `history` of queues and evictions, and the `audit` log. Written by `service` alone. Knows neither callers nor sockets.
"""
