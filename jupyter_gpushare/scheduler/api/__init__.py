"""The API, independent of the transport.

`router` answers one call, `event_stream` sends committed changes to listeners, `agent_sessions`
holds one session per node agent. `http` uses them for sockets and `embedded` inside one process, so
the two cannot differ. Nothing here knows HTTP.
"""
