"""The one that says yes: people's commands, agents' reports and the cycle's decisions, each committed before it is announced.

`service` is the desk that `links` calls; `loop` is its clock; `reports` hears the agents. The others decide one thing each (`terms`: how long,
`marks`: which nodes, `commands`: batch work, `metering`: what was held, `policy_desk`: what a policy would change) or show what is known
(`tables`, `answers`, `metrics`). One thread, no sockets, nothing waits.
"""
