"""The kernels of this server.

`kernel_registry` keeps one `kernel_entry` per kernel with the reports of the scheduler and the node
agent, `kernel_view` composes them into one `Kernel`, `own_shares` suggests shares to release,
`request` validates GPU requests, `launches` reports kernel launches to the agent, `unregistered`
covers kernels that start while the agent is unreachable, `token_files` has their tokens,
`kernel_history` keeps samples.
"""
