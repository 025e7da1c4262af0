"""The scheduler's decisions: facts in, decisions out. No I/O, no clock (time is an argument), no logging; every tie ends in a name.

Read it in the order in which a cycle goes:

    what there is        `model` (the nouns), `amounts`, `quantity` (amounts as text), `errors`, `facts` (what can happen), `cluster` (what the
                         rest of the house sees), `state`, `work`, `pools`, `journal` (undo), `readiness`, `lease` (its life, as one table)
    a cycle              `cycle`, `actions` (allocate, consolidate, reclaim, preempt, evict stale gangs), `decisions` (what comes out)
    who is next          `fairshare`, `entitlement`, `quota`, `queue`, `turns`, `usage` (time-based fair share), `waiting`, `easier`
    where it goes        `need`, `placement`, `devices`, `topology`, `gang`, `packing` and `fragmentation` (placement `defragment`), `capacity`
    who makes room       `solver`, `structured`, `victims`, `reseating`, `consolidation`, `reclaim`, `preempt`, `smallest`, `reservation`
    why one waits        `reasons`, `explain`, `case`, `why`, `helps`, `positions`
    for how much longer  `foresight`, `likeness`, `expectation`
    over time            `series`, `shelves` (views that outlive a cycle)
"""
