"""Messages: `scheduler_session` (the scheduler's stream), `message_handlers` (kernels and servers),
`user_actions` (pin, suspend, …).
"""
