"""The scheduler's decisions: events in, decisions out.

Pure: no I/O, no logging, and time is an argument. Ties are broken by name, so the same input gives
the same decisions. `docs/explanation/scheduling.md` describes the rules. Packages from top to
bottom, each importing only those below it:

    cycle        one scheduling cycle: its actions, and its projection into the future
    pool_options the options of node pools, one module each
    reasons      why a pending workload waits, and what would help
    eviction     making room: reclaim, preemption, consolidation, and the solver they share
    queueing     which workload is next: fair shares in force, queue order, reservations
    allocation   placement: a node for one pod, or nodes for a whole gang
    cluster      the in-memory model: nodes, pools, queues, topology, quota, pending workloads
    fairness     dividing resources among queues; usage over time
    estimates    how long similar requests waited
    bookings     whether GPUs booked for a time fit beside quotas; wall times that repeat
    model        values: workloads, events, decisions, amounts, units, errors
"""
