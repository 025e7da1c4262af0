"""Connections: `agent_client` (node agent), `scheduler_line` (scheduler), `embedded_scheduler`
(both inside this server), `jupyter_server`.
"""
