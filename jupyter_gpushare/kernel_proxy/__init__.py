"""A process between a Jupyter server and one kernel, which gives kernels of any language the cell
gate: `python -m jupyter_gpushare.kernel_proxy`.

The kernel is not changed. The proxy serves the five channels of the kernel's connection file and
forwards every message unchanged, except that an `execute_request` waits until the node agent
allows it. Only the messages that it adds itself are signed by it.

__main__         options, and the life of the process
proxy            the event loop that forwards messages
gate             which requests wait, in which order, and what is reported to the agent
held_cell        one request: its wait, its text under the cell, its end
agent_link       the connection to the node agent
server_link      the provisioner's commands, over an inherited socket
channels         the sockets of the five channels
messages         the Jupyter wire protocol: frames, headers, signatures
connection_file  addresses and keys
visible_gpus     whether the process can use the GPUs of its share
texts            sentences under a cell
"""
