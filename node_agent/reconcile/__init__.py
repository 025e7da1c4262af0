"""Brings the node to the state that the plan asks for.

`reconciler` observes, decides and applies. `leases` assigns GPUs, `lifecycle` follows kernels and
`process_groups` their processes, `memory_mover` copies GPU memory, `idle_culler` applies the idle
rule, `batch` runs commands, `usage_sampler` meters, `watchdog` finds stuck kernels, `wait_text`
says why a cell waits.
"""
