"""What the scheduler knows: each workload, node and hour, and what was done. The `ledger` is the one way to change it: with the store, or not at all.

Written by `service` alone; `requests` and `subgroups` turn what somebody asks for into the core's words first. Knows neither callers nor sockets.
"""
