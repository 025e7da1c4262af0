"""The service: every change is committed before it is announced.

`service` is its interface. `workload_commands` handles users' commands (with `what_if`,
`feasibility` for requests that can never start, `person_limits` and `pod_budget` per user),
`reports` what agents send (with `batch` for commands in pods, `output_budget` per user, and
`turn_reports` of what kernels do). `loop` decides when a cycle runs, `cycles` runs and commits it,
`replacements` tries requests that replace a share. `queries` answers what a caller may see,
`tables` makes its rows (`queue_demand` counts pending changes), `pending_status` says why a
workload waits and its position, `wait_estimates` and `wait_text` for how long (`turn_estimates`
where shares take turns). `platform_nodes` takes over what Kubernetes says about nodes. `people`
shows and manages members of projects. `bookings` takes and shows bookings (`booking_limits`,
`booking_rows`), `booking_windows` tells the cluster about them, and `booking_feeds` shows them to
calendar programs (`calendar_file`). `time_limits`, `cordon`, `metering`, `policy_preview` and
`metrics` (with `metric_table`) have one task each. One thread, no sockets; nothing blocks.
"""
