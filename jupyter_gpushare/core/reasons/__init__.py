"""Why a workload waits.

`explain` takes a snapshot at the end of a cycle, `pending_view` is what a reason may depend on,
`reason_rules` chooses the reason, `messages` has the
texts, `suggestions` lists what the user could change.
"""
