"""One file per step, `NNNN_name.py`; `store.database` reads the numbers."""
