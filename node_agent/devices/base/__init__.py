"""What every vendor shares.

`protocols` is what the agent asks of devices, `process_attribution` finds whose a process is,
`call_tracker` and `hang_detection` notice driver calls that do not return.
"""
