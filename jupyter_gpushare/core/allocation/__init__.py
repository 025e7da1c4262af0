"""Where pods go: `placement` finds a node for one pod, `gang` nodes for all pods of a workload or
none.
"""
