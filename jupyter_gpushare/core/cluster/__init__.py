"""The cluster in memory.

`cluster` is the public interface and `state` the mutable model, undone through `undo_log`. Nodes:
`nodes`, `topology`, `capacity`, `departures`. Pools and queues: `pools`, `queues`, `quota`,
`queue_positions`; `trial_budget` bounds searches; `bookings` and `promised_quota` are quota in
windows of time. People: `people`, `people_events`. Workloads: `work`, `pending_index`,
`easiest_requests`; `time_sharing` has the rules of turns. Placement `defragment`: `packing`,
`fragmentation`. `cow_dict` is a copy-on-write mapping, `versions` numbers the states of pools.
"""
