"""The unix socket: `socket_server`, `line_stream` with the bounds on its memory, and
`kernel_tokens`, by which kernels authenticate.
"""
