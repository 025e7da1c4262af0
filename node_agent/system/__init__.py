"""Linux: `processes`, `cgroups`, `host_memory`, `pressure`, and `run_directory` for sockets and
tokens.
"""
