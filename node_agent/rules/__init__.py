"""What the agent decides, pure: one moment of the node in, decisions out. No clock, no process, no file, no driver; ties end in a name.

`situation` is the moment. From it `placement` finds a GPU for a lease, `reclaim` climbs the ladder (who gets its place now, who makes room, how
gently), `caps` says how much each kernel may hold, `idleness` when an idle one is told, suspended or ended. `accounting` finds whose memory is
whose, `lending` who lends to whom, `health` whose trouble an error of a GPU is. Called by `desk`, `leases`, `resting`, `usage` and what samples
the `devices`.
"""
