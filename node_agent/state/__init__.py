"""What the agent remembers.

`node` is the node as a whole, `kernel_record` one kernel, `draining` memory that should have been
released. `journal` survives a crash, `usage_outbox` keeps unacknowledged usage, `event_text` words
events for people.
"""
