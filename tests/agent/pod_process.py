"""A process inside of a pod of `tests.agent.pods`: does there what a test asks for.

Commands come as JSON lines over the socket that it inherits: {"connect": path} answers with the
connected socket, {"run": code} with the value of `result`.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import traceback

from tests.agent.kernel_process import become


def run(code: str) -> dict:
    scope: dict = {"result": None}
    try:
        exec(code, scope)
    except Exception as error:
        return {"error": type(error).__name__, "trace": traceback.format_exc()}
    return {"result": scope["result"]}


def main() -> None:
    channel = socket.socket(fileno=int(sys.argv[1]))
    become(sys.argv[2])
    channel.sendall(json.dumps({"pid": os.getpid(), "uid": os.getuid()}).encode() + b"\n")
    for line in channel.makefile("rb"):
        command = json.loads(line)
        if "connect" in command:
            with socket.socket(socket.AF_UNIX) as made:
                made.connect(command["connect"])
                socket.send_fds(channel, [b"\n"], [made.fileno()])
        else:
            channel.sendall(json.dumps(run(command["run"])).encode() + b"\n")


if __name__ == "__main__":
    main()
