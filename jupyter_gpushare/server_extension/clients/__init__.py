"""Connections of this server.

`scheduler_transport` reaches the scheduler, `agent_client` the node agent, `jupyter_server` Jupyter
itself. `embedded_services` starts the embedded scheduler and agent (with `embedded_scheduler`, and
`embedded_log` for their log) and reports to `startup`. `local_user` is
the name of this process's user.
"""
