"""HTTP and WebSockets.

`listeners` opens network and unix sockets with their certificates, `handlers` pass requests to
`api`, `standby` answers at an address until this scheduler leads.
"""
