"""One scheduling cycle: `cycle` runs it, `actions` are its steps, `projection` simulates later
cycles.
"""
