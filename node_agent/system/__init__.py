"""Linux: `processes` and whose they are (`process_owner`, `pods`), `peers` of a socket and which of
them are served (`tenancy`), `cgroups` with `subtree`, `cgroup_paths`, `host_memory`, `host_usage`,
`pressure`,
`run_directory` for sockets and tokens, `run_as` for commands of other users with their
`user_limits`, `accounts` of people and of the system.
"""
