"""Authentication, permissions and rate limits.

`authentication` tries the scheduler's own tokens (`identity`), JupyterHub (`jupyterhub`) and the
operating system (`peer_credentials`), and returns one `Identity`. `permissions` is the table of
what an identity may do, `authorization` applies it, `rate_limits` counts calls.
"""
