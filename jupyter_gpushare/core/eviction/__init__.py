"""Making room for a workload that does not fit.

`reclaim` (between projects, by fairness), `preempt` (inside a project, by priority) and
`consolidation` (moves only) decide which pods may be evicted. `victim_candidates` lists them in
order, `solver` (`topology_solver` for topology and sub-groups) finds how many are needed, and
`rescheduling` places victims again. `node_victims`, `evicted_units` and `reclaim_charges` keep sums
while the victims grow. `rotation` lets idle workloads give way to waiting cells, `room_placement`
makes room for bookings. `hooks` are the places where options of a node pool act.
"""
