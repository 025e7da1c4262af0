"""One file per step, NNNN_what.py; `scheduler.database` goes by the numbers."""
