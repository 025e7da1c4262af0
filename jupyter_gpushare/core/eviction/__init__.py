"""Making room for a workload that does not fit.

`reclaim` (between queues, by fairness), `preempt` (inside a project, by priority) and
`consolidation` (moves only) say whose pods may be taken. `victim_candidates` lists them in order,
`solver` (`topology_solver` for topology and sub-groups) finds how many are needed, `rescheduling`
decides where victims go, and `smallest_victims` is the option `victims: smallest`.
"""
