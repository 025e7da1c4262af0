"""Messages: `scheduler_session` (the scheduler's stream, with `link_renewal`), `message_handlers`
(kernels and servers) with `cell_handlers` for cells and `relay` for requests that servers answer,
`user_actions` (pin, suspend, …).
"""
