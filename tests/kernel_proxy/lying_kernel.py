"""A process that has bound a kernel's ports without knowing its key: it replies to every request
with a wrong signature, `kernel_info_request` excepted.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import zmq
from jupyter_client.session import Session


def main(path: str) -> None:
    file = json.loads(Path(path).read_text())
    reads, lies = Session(key=file["key"].encode()), Session(key=b"wrong")
    context, poller, sockets = zmq.Context(), zmq.Poller(), {}
    kinds = {"shell": zmq.ROUTER, "control": zmq.ROUTER, "stdin": zmq.ROUTER, "hb": zmq.REP}
    for channel, kind in {**kinds, "iopub": zmq.XPUB}.items():
        sockets[channel] = context.socket(kind)
        sockets[channel].bind(f"tcp://127.0.0.1:{file[f'{channel}_port']}")
        poller.register(sockets[channel], zmq.POLLIN)
    while True:
        for ready, _ in poller.poll():
            if ready is sockets["hb"]:
                ready.send(ready.recv())
            elif ready is sockets["shell"]:
                idents, message = reads.recv(ready, 0)
                kind = message["header"]["msg_type"].replace("_request", "_reply")
                session = lies if kind == "execute_reply" else reads
                state = {"execution_state": "idle"}
                reads.send(sockets["iopub"], "status", state, message, b"status")
                content = {"status": "ok", "protocol_version": "5.3"}
                session.send(ready, kind, content, message, idents)
            else:
                ready.recv_multipart()


if __name__ == "__main__":
    main(sys.argv[-1])
