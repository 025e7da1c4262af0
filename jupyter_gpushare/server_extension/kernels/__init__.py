"""What this server knows of its kernels.

`kernel_registry` joins the scheduler's and the agent's view, `request` is what a person asks for,
`launches` reports kernel launches to the agent, `unregistered` covers kernels that start while the
agent is away, `kernel_history` keeps samples.
"""
