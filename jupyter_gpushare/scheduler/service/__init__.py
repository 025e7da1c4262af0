"""The service: every change is committed before it is announced.

`service` takes commands, `loop` decides when a cycle runs, `cycles` runs and commits cycles,
`replacements` tries requests that replace a share, `feasibility` recognizes requests that can never
start, `reports` handles what agents send. Each other module has one task: `time_limits`, `cordon`,
`batch`, `metering`, `policy_preview`, `queries` (what a caller may see), `tables`, `what_if`,
`pending_status` (why a workload waits and its position), `wait_estimates` and `wait_text` (for how
long), `metrics`. One thread, no sockets; nothing blocks.
"""
