"""The services of this package without a Jupyter server: for the kernels of nbconvert, papermill,
`jupyter run`, `jupyter console` and everything else that starts kernels through jupyter_client.

session   a thread with the services, one per process
host      what the provisioner calls, from any event loop
kernels   the kernels of this process, in the role of a Jupyter server
report    lines on stderr
tool      the program that starts the kernel
"""
