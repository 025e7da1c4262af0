"""The cell gate: a cell asks the node agent for permission, waits, and can be interrupted.

gate        hooks of IPython, and when a cell has to ask
work        what runs, and with which permissions
agent_wait  how long cells wait for an agent that is away
wait        one wait, from the request to the decision
wait_text   the sentences under a waiting cell
interrupts  SIGINT during a wait and during a cell
errors      the two exceptions that a cell can end with
"""
