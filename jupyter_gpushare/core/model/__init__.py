"""Values that the other packages share; they decide nothing.

`model` has the nouns (pools, queues, nodes, workloads, pods), `requirements` what one pod needs.
`events` change a cluster, `decisions` come out of a cycle, `reason` and `node_conditions` are the
closed sets of explanations, `lease` is the life of a lease. `amounts` and `units` are numbers and
their text form; `errors` is the family of exceptions.
"""
