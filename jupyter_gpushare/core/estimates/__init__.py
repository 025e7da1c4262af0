"""Expected waits: `wait_history` finds similar requests, `survival` estimates from them;
`time_series` keeps samples.
"""
