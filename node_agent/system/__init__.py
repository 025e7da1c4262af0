"""Linux: `processes`, `cgroups` with `subtree`, `host_memory`, `pressure`, `run_directory` for
sockets and tokens, `run_as` for commands of other users with their `user_limits`.
"""
