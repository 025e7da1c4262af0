"""A kernel that answers every shell message at once, so that a round trip measures the transport:
`python -m tests.benchmarks.echo_kernel FILE`.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import zmq
from jupyter_client.session import Session


def main(path: str) -> None:
    file = json.loads(Path(path).read_text())
    session = Session(key=file["key"].encode(), signature_scheme=file["signature_scheme"])
    context = zmq.Context()
    sockets = {}
    kinds = {"shell": zmq.ROUTER, "control": zmq.ROUTER, "stdin": zmq.ROUTER, "hb": zmq.REP}
    for channel, kind in {**kinds, "iopub": zmq.XPUB}.items():
        sockets[channel] = context.socket(kind)
        sockets[channel].bind(f"tcp://{file['ip']}:{file[f'{channel}_port']}")
    poller = zmq.Poller()
    for one in sockets.values():
        poller.register(one, zmq.POLLIN)
    while True:
        for ready, _ in poller.poll():
            if ready is sockets["shell"]:
                idents, message = session.recv(ready, 0)
                kind = message["header"]["msg_type"].replace("_request", "_reply")
                content = {"status": "ok", "execution_count": 1}
                state = {"execution_state": "idle"}
                session.send(sockets["iopub"], "status", state, message, b"status")
                session.send(ready, kind, content, message, idents)
            else:
                ready.recv_multipart()


if __name__ == "__main__":
    main(sys.argv[1])
