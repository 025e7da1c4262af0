"""The same decisions on paper: a `scenario` read (`scenario_file`, `scenario_shapes`) and run, a running cluster written as one (`snapshot`), a
`fairshare_file` divided.

Called by the commands `simulate` and `fairshare`, and by the service for its snapshot. Neither store nor clock.
"""
