"""Placement: `placement` finds a node for one pod, `gang` places all pods of a workload or none.

`replanning` makes room by planning shares on other GPUs of their node, with the search in
`rearrangement`.
"""
