"""GPU requests of this server's kernels.

`submitter` submits, changes and releases them, `workload_client` makes the calls to the scheduler,
`presets` are named shares, `orphans` finds requests of kernels that have ended.
"""
