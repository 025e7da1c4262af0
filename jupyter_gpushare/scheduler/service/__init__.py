"""The one that says yes: people's commands, agents' reports and the cycle's decisions, each committed before it is announced.

`service` is the desk that `links` calls; `loop` is its clock; `reports` hears the agents. The others decide one thing each (`terms`: how long,
`marks`: which nodes, `commands`: batch work, `metering`: what was held, `policy_desk`: what a policy would change), or say what is known: `shown`
(to which caller), `tables`, `answers` (what if), `lots` (to who waits: why, which place), `outlook` and `expected` (for how much longer), `metrics`.
One thread, no sockets, nothing waits.
"""
