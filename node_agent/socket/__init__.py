"""The unix socket: `socket_server`, `line_stream` with the bounds on its memory,
`peer_log` with the bound on warnings, and `kernel_tokens`, by which kernels authenticate.
"""
