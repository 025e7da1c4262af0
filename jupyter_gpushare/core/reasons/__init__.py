"""Why a workload waits.

`explain` reads the end of a cycle, `pending_view` is what a reason may depend on, `reason_rules`
choose the reason, `suggestions` say what the person could change.
"""
