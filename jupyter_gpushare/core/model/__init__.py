"""Values that the other packages share. They contain no scheduling logic.

`model` has pools, queues, nodes, workloads and pods, `requirements` what one pod needs,
`pool_option` what an option of a node pool is. `events` change a cluster, `decisions` are the
result of a cycle, `reason` and `node_conditions` are closed sets of explanations. `amounts` and
`units` are numbers and their text form; `errors` is the family of exceptions.
"""
