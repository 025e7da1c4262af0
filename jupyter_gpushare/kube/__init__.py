"""Kubernetes: what nodes and pods mean for scheduling, identities of agents, checks, and the chart.

Runs beside the scheduler; the command line joins them (`jupyter gpushare scheduler --kubernetes`),
and the scheduler never imports this package. `names` has the labels, names and paths that the chart
uses too. `objects` reads nodes and pods, `rules` says what follows from them, `inventory` keeps
them together. `api_client` sends requests, `reflector` keeps a copy of one kind of objects,
`token_review` authenticates agents. `engine` joins these, and `integration` adds it to a scheduler.
`check_facts` and `checks` are `jupyter gpushare kube check`; `chart_files` writes the chart out.

The client `kubernetes` is imported only when it is used: it is large and takes a third of a second
(`pip install jupyter-gpushare[kubernetes]`).
"""
