"""Expected waits. `wait_history` finds similar requests, `survival` estimates from their waits,
`time_series` keeps samples.
"""
