"""What the agent knows.

`node` is the node as a whole, `config` its configuration. `kernel_record` is one kernel,
composed of sub-records with an owner each: `kernel_process`, `cell_requests`, `assignment`,
`kernel_memory`, `background_work`, `notices`, `residence`, `turn`. `kernel_view` is what is
sent about it, `publisher` sends it. `draining` follows memory that should have been freed.
`journal` survives a crash, `usage_outbox` keeps unacknowledged usage, `event_text` has the
messages for people, `rate_budget` limits what they cause, `wall_clock` the time that they see.
"""
