"""A kernel for tests: a real process that speaks to a real agent, runs cells of Python, and asks
the gate before each.

Commands come as JSON lines on stdin ({"cell": code}, with "beside" in a thread of its own;
{"cancel": n}; {"ask": action}); answers go to stdout. It
uses the notebook side's own line to the agent, so a change of the words breaks these tests.
"""

from __future__ import annotations

import ctypes
import json
import os
import pwd
import sys
import threading
import time
import traceback

from jupyter_gpushare.kernel.connection import AgentConnection, address_from

PR_SET_DUMPABLE = 4
cells: set = set()


def say(body: dict) -> None:
    sys.stdout.write(json.dumps(body) + "\n")
    sys.stdout.flush()


def on_message(message: dict) -> None:
    if message["type"] == "kernel_welcome":
        for n in list(cells):
            link.send(
                {"type": "cell_start", "n": n, "exempt": False, "wait": False, "running": True}
            )
    if message["type"] == "drop_caches":
        link.send({"type": "caches_dropped"})
    if message["type"] in ("notice", "notice_over", "told", "end_cell"):
        say({"note": message})


def gate() -> tuple[int, dict]:
    sentences = []
    begun = time.monotonic()
    while True:
        link.welcomed.wait(20)
        with link.open_request() as (n, answers):
            link.send({"type": "cell_start", "n": n, "exempt": False, "wait": False})
            while True:
                message = answers.get(timeout=60)
                if message["type"] == "cell_wait":
                    sentences.append(message["message"])
                    say({"waits": message["message"], "n": n})
                elif message["type"] == "away":
                    break
                elif message["type"] == "cell_refused":
                    raise RuntimeError("refused: " + message["message"])
                else:
                    without_gpu = message.get("without_gpu", False)
                    waited = time.monotonic() - begun
                    return n, {"waited": waited, "sentences": sentences, "without_gpu": without_gpu}


def run_cell(code: str, scope: dict) -> None:
    try:
        n, wait = gate()
    except RuntimeError as error:
        say({"error": str(error)})
        return
    cells.add(n)
    say({"running": n})
    try:
        scope["result"] = None
        exec(code, scope)
        say({"done": n, "result": scope["result"], **wait})
    except BaseException as error:
        say({"error": f"{type(error).__name__}: {error}", "trace": traceback.format_exc()})
    finally:
        cells.discard(n)
        link.send({"type": "cell_end", "n": n})


def ask(action: str) -> None:
    with link.open_request() as (n, answers):
        link.send({"type": "ask", "n": n, "action": action, "body": {}})
        say({"reply": answers.get(timeout=60)})


link = AgentConnection(address_from(os.environ), on_message)


def become(name: str) -> None:
    """That user, for good: by name, or by the number in a container, which need not have a name.
    Late, for this Python may be readable by root alone: what is imported later has to be here
    before.
    """
    import fractions  # noqa: F401 - the same for sizes
    import struct  # noqa: F401 - the link's

    uid, gid = (int(name), int(name)) if name.isdigit() else pwd.getpwnam(name)[2:4]
    os.setgroups([]), os.setgid(gid), os.setuid(uid)
    ctypes.CDLL(None).prctl(PR_SET_DUMPABLE, 1, 0, 0, 0)  # as after exec


def main() -> None:
    from jupyter_gpushare.kernel import simgpu

    if sys.argv[1:]:
        become(sys.argv[1])
    link.start()
    link.welcomed.wait(20)
    say({"hello": os.getpid()})
    scope = {"simgpu": simgpu, "time": time, "os": os, "bufs": []}
    for line in sys.stdin:
        command = json.loads(line)
        if "ask" in command:
            threading.Thread(target=ask, args=(command["ask"],), daemon=True).start()
        elif "cancel" in command:
            link.send({"type": "cell_cancel", "n": command["cancel"]})
        elif command.get("beside"):  # a subshell, or a widget's message
            threading.Thread(target=run_cell, args=(command["cell"], scope), daemon=True).start()
        else:
            run_cell(command["cell"], scope)


if __name__ == "__main__":
    main()
