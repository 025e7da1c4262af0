"""The node agent: the only place that touches GPUs and kernel processes. One per GPU node.

Decisions are pure and look at one moment (`rules`); everything else finds out what is, or does what was decided:

    decided (pure)        `rules`: which GPU, who makes room and how gently, how much each may hold, when the idle are told
    one agent             `app` (put together), `node` (what everybody gets), `books` (what is remembered), `journal` (over a crash),
                          `desk` (asks the ladder, does it), `story` (the sentences)
    kernels               `lifecycle`, `leases` (planned and actual places), `batch` (commands), `resting` (idle rules), `wishes` (pin, suspend ...),
                          `waiting` (what a cell that waits is told)
    who talks             `session` (with the scheduler), `gate` (the unix socket), `talk` (what is said there), `tokens`, `doors` (folders)
    processes             `processes`, `owners`, `cgroups`, `enclosures`, `pressure`
    GPUs                  `devices` (any), `inventory` (which), `patience` (until they are there), `selftest`, `mps`, `toy`, `proof` (what they can)
    saving GPU memory     `suspend`, `checkpointer` and `helper` (a process that makes the driver's calls), `hostmemory`, `watchdog`, `draining`
    what was used         `usage`, `tally` (until the scheduler has it)
"""
