"""The node agent: the only process that touches GPUs and kernel processes. One per GPU node.

Packages from top to bottom, each importing only those below it:

    app         composition root: builds the parts, starts and stops them
    api         messages of the scheduler, of kernels and of Jupyter servers
    reconcile   observe the node, decide, apply: kernels, leases, memory copies, batch commands
    socket      the unix socket of this machine, and the tokens of its kernels
    state       what the agent remembers, and the journal on disk
    discovery   which GPUs this machine has
    devices     one folder per vendor behind small protocols
    system      Linux: processes, cgroups, host memory, pressure, directories
    policy      decisions, pure: one snapshot in, decisions out
"""
