"""One conversation, whatever carries it: a call and its answer (`dispatch`), a stream and its listeners (`streams`), an agent's link (`agent_link`).

Used by `doors` for what comes over a socket and by `embedded` for what stays inside one process, so that the two cannot differ. Nothing here
knows of HTTP.
"""
