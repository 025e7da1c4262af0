"""`python -m jupyter_gpushare.kernel_proxy --front FILE --back FILE --fd N`: started by the
kernel's provisioner.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import sys
from pathlib import Path
from typing import Final

import zmq

from ..kernel.cell_gate.agent_wait import agent_wait_s
from ..kernel.connection import address_from
from .agent_link import ProxyAgentLink
from .channels import KernelChannels
from .connection_file import ConnectionFile, UnsupportedConnection
from .messages import Signer
from .proxy import KernelProxy
from .server_link import ServerLink
from .visible_gpus import VISIBLE

FAILED: Final = 1
GONE_S: Final = 30.0


def main() -> int:
    """Serve one kernel; the exit status."""
    options = _options()
    # the provisioner decides about interrupts, and stops the proxy
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        proxy = _proxy(options)
        proxy.run()
    except (OSError, ValueError, KeyError, UnsupportedConnection, zmq.ZMQError) as error:
        sys.stderr.write(f"gpushare: the cell gate of {options.front.name} failed: {error}\n")
        return FAILED
    if proxy.is_orphan:
        _remove_files(options.back)
    return 0


def _remove_files(back: Path) -> None:
    """What the server would have removed: the kernel's connection file, with its key, and the
    sockets in the same folder.
    """
    with contextlib.suppress(OSError):
        for path in (back, *back.parent.glob("k-[1-5]")):
            path.unlink()
        back.parent.rmdir()


def _proxy(options: argparse.Namespace) -> KernelProxy:
    front = ConnectionFile.read(options.front)
    if front.curve_secret is not None and not zmq.has("curve"):
        raise UnsupportedConnection(
            "the connection file has Curve keys, but this ZeroMQ has no Curve encryption"
        )
    return KernelProxy(
        KernelChannels(front, ConnectionFile.read(options.back)),
        Signer(front.key, front.digest),
        ProxyAgentLink(address_from(os.environ), problem=os.environ.get("GPUSHARE_PROBLEM", "")),
        ServerLink(options.fd),
        launched_with=os.environ.get(VISIBLE),
        wants_gpu=os.environ.get("GPUSHARE_WANTS_GPU") == "1",
        agent_wait_s=agent_wait_s(os.environ),
        gone_after_s=options.gone_after,
    )


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--front", type=Path, required=True, help="connection file of the clients")
    parser.add_argument("--back", type=Path, required=True, help="connection file of the kernel")
    parser.add_argument("--fd", type=int, required=True, help="socket of the provisioner")
    parser.add_argument(
        "--gone-after", type=float, default=GONE_S, help="seconds after the end of the kernel"
    )
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
