"""What the agent decides. Pure: no clock, process, file or driver; ties end in a name.

`snapshot` is one moment of the node. `placement` finds a GPU for a lease, `reclaim_ladder` decides
who gets memory now and who makes room, `caps` how much each kernel may hold, `idleness` when an
idle kernel is warned, suspended or ended. `memory_accounting` attributes GPU memory to kernels,
`lending` says who lends to whom, `gpu_errors` words device errors.
"""
