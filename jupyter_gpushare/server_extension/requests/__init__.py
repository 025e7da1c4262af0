"""GPU requests on their way to the scheduler: `submitter` sends them, `presets` are named shares,
`orphans` finds abandoned ones.
"""
