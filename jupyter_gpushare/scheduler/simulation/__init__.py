"""The same decisions on paper: a scenario read and run, a running cluster written as one, a fair share file divided.

Called by the commands `simulate` and `fairshare`, and by the service for its snapshot. Neither store nor clock.
"""
