"""An IPython kernel that SIGINT ends, like that of xeus-python."""

from __future__ import annotations

import os
import signal

from ipykernel.kernelapp import IPKernelApp

if __name__ == "__main__":
    app = IPKernelApp.instance()
    app.initialize()
    handler = signal.signal(signal.SIGINT, lambda *_: os._exit(0))
    signal.signal = lambda number, *_: handler  # ipykernel sets its own before every cell
    app.start()
