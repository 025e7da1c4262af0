"""What the handlers call.

`service` joins what scheduler and agent report; `publisher` and `broadcast` pass changes on to
pages, the event log and the agent; `kernel_rpc` answers requests from kernels; `relaunch` restarts
kernels for the agent; `status` and `notebook_names` do what they say; `protocols`
states what the service needs of its neighbours.
"""
