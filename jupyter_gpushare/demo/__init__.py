"""The notebooks of `jupyter gpushare demo`, and `tour`, with which the tutorial runs the others."""
