"""HTTP and WebSockets.

`listeners` opens network and unix sockets with their certificates, `bounded_server` limits the
connections of each peer, `handlers` and `websockets` pass
requests to `api`, `calls` has what they share, `standby` answers at an address until this scheduler
leads.
"""
