"""Connections of this server.

`scheduler_transport` and `embedded_scheduler` reach the scheduler, `agent_client` the node agent,
`jupyter_server` Jupyter itself; `startup` says whether the embedded services have started.
"""
