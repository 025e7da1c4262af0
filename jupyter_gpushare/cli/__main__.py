"""`python -m jupyter_gpushare.cli`: the same as the console script."""

from jupyter_gpushare.cli import main

main()
