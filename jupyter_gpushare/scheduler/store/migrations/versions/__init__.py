"""One file per step, NNNN_what.py; `scheduler.store.database` goes by the numbers."""
