"""Linux: `processes`, `cgroups` with `subtree`, `host_memory`, `pressure`, and `run_directory` for
sockets and tokens.
"""
