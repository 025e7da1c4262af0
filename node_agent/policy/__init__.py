"""What the agent decides. Pure: no clock, process, file or driver; ties end in a name.

`snapshot` is one moment of the node. `placement` finds GPUs for a lease, `reclaim_ladder` decides
which kernel gets memory now and which make room (in `reclaim_steps`), `caps` how much each kernel
may hold, `idleness` when an idle kernel is warned, suspended or shut down. `memory_accounting`
attributes GPU memory to kernels, `lending` to lenders, `gpu_errors` words device errors.
"""
