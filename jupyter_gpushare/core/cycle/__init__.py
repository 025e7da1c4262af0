"""One scheduling cycle. `cycle` runs it, `actions` are its steps, `projection` plays cycles
forward.
"""
