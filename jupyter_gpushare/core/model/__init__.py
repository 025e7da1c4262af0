"""Values that the other packages share. They contain no scheduling logic.

`model` has pools, queues, nodes, workloads and pods, `requirements` what one pod needs,
`gpu_request` the amounts of a request, `pool_option` the options of a node pool. `events` change a
cluster, `activity` is what a kernel does, `decisions` are the result of a cycle, `reason` and
`node_conditions` are closed sets of explanations, `code_help` their causes and remedies,
`platform_node` is a node as the platform below describes it, `labels` the syntax of labels,
`booked_window` is a booking in one window of time. `amounts` and `units` are numbers and their text
form; `errors` is the family of exceptions.
"""
