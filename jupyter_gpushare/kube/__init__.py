"""Kubernetes: what nodes and pods mean for scheduling, identities of agents, checks, and the chart.

Runs beside the scheduler; the command line joins them (`jupyter gpushare scheduler --kubernetes`).
The scheduler never imports this package. The client `kubernetes` is imported only when it is used:
`pip install jupyter-gpushare[kubernetes]`.
"""
