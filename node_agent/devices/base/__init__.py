"""What all vendors share.

`protocols` and `model`: the interface between the agent and devices; `basic_devices`: defaults for
a vendor; `process_attribution`: which kernel a process belongs to; `call_tracker` and
`hang_detection`: driver calls that do not return.
"""
