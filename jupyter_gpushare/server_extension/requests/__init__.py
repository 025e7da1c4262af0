"""GPU requests of this server's kernels.

`submitter` submits and releases them, `share_changes` changes a share, `workload_client` makes the
calls to the scheduler, `presets` are named shares, `orphans` finds requests of ended kernels.
"""
