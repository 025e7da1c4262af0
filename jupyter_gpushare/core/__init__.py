"""The scheduler's decisions: events in, decisions out.

No I/O, no clock (time is an argument) and no logging; every tie ends in a name. Packages from top
to bottom, each importing only those below it:

    cycle        one scheduling cycle: its actions, and how it projects into the future
    reasons      why a pending workload waits, and what would help
    eviction     making room: reclaim, preemption, consolidation, and the solver they share
    queueing     which workload is next: fair shares in force, queue order, reservations
    allocation   where pods go: a node for one pod, or nodes for a whole gang
    cluster      the in-memory model: nodes, pools, queues, topology, quota, pending workloads
    fairness     dividing resources among queues; usage over time
    estimates    how long similar requests waited
    model        values: workloads, events, decisions, amounts, units, errors
"""
