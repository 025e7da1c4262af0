"""Placement: `placement` finds a node for one pod, `gang` places all pods of a workload or none."""
