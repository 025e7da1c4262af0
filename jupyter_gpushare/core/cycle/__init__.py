"""One scheduling cycle: `cycle` runs it, `actions` are its steps, `walk` tries pending workloads in
queue order, `projection` simulates later cycles.
"""
