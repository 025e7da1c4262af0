"""How callers get in: HTTP and WebSockets around a house (`rest`), sockets and certificates (`listening`), and the address that a `standby` holds.

Opened by `app` and `embedded`. What is said inside is not decided here: every call goes on to `links`.
"""
