"""A real qtconsole, in which these cells are entered: `python typed_qtconsole.py SPEC CELL...`. It
prints its window when they have run, and closes it. Runs in the environment of qtconsole.
"""

from __future__ import annotations

import sys

from qtconsole.qtconsoleapp import JupyterQtConsoleApp
from qtpy.QtCore import QTimer


def main(spec: str, *cells: str) -> None:
    app = JupyterQtConsoleApp()
    app.initialize(["--kernel", spec, "--no-confirm-exit"])
    console, left = app.widget, list(cells)

    def enter_next() -> None:
        if left:
            console.execute(left.pop(0))
            return
        sys.stdout.write(console._control.toPlainText())
        app.window.close()

    def when_ready() -> None:
        if console.kernel_client.channels_running and console._prompt:  # the first prompt
            console.executed.connect(lambda _: QTimer.singleShot(0, enter_next))
            enter_next()
        else:
            QTimer.singleShot(50, when_ready)

    when_ready()
    app.start()


if __name__ == "__main__":
    main(*sys.argv[1:])
