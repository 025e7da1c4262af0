"""Connections of this server.

`scheduler_transport` reaches the scheduler, `agent_client` the node agent, `jupyter_server` Jupyter
itself, `gateway_relay` the Jupyter server where the kernels run, if that is another one.
`embedded_services` starts the embedded scheduler and agent (with `embedded_scheduler`, and
`embedded_log` for their log) and reports to `startup`. `local_user` is the name of this process's
user.
"""
