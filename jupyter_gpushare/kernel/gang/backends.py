"""The part of a cluster that runs in this kernel, and the command that each pod runs. Dask and
ipyparallel are imported on first use; neither is required.
"""

from __future__ import annotations

import importlib.util
import logging
import socket
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, Protocol

from ..rpc import GpuError

__all__ = ["Backend", "open_backend", "own_address"]

DEATH_TIMEOUT_S: Final = 60
"""A Dask worker whose scheduler does not answer for so long ends."""
LOOPBACK: Final = "127.0.0.1"
ANY_REMOTE: Final = ("192.0.2.1", 9)
"""Of a range that nobody uses (RFC 5737): shows the route, nothing is sent."""


CURVE: Final = "--IPController.enable_curve=True"
CONNECTION_INFO: Final = "IPP_CONNECTION_INFO"


class Backend(Protocol):
    """A running scheduler or controller. `client`: what user code works with. `environment`: what
    a worker on another node needs to connect.
    """

    client: Any
    environment: dict[str, str]

    def worker_command(self) -> list[str]: ...
    def connected(self) -> int: ...
    def close(self) -> None: ...


class DaskBackend:
    """A Dask scheduler in this kernel. It uses TLS with certificates of its own: all users of the
    machine can connect to loopback, and a Dask scheduler runs the code of its clients.
    """

    def __init__(self, host: str | None) -> None:
        from distributed import Client, Scheduler, SpecCluster

        security = _temporary_security()
        self._folder = tempfile.TemporaryDirectory(prefix="gpushare-dask-")  # of this user alone
        self._credentials = (
            _write_credentials(security, Path(self._folder.name)) if host is None else []
        )
        self.environment = {} if host is None else _credentials_in_environment(security)
        options = {"host": host or LOOPBACK, "port": 0, "dashboard": False}
        self._cluster = SpecCluster(
            scheduler={
                "cls": Scheduler,
                "options": {**options, "protocol": "tls://", "security": security},
            },
            workers={},
            security=security,
            silence_logs=logging.WARNING,  # as of Dask's LocalCluster: they appear under the cells
        )
        self.client: Any = Client(self._cluster)

    def worker_command(self) -> list[str]:
        """`--no-nanny`: a worker that dies ends its pod, and is not replaced outside of it."""
        worker = [sys.executable, "-m", "distributed.cli.dask_worker"]
        options = ["--no-nanny", "--no-dashboard", "--nthreads", "1"]
        timeout = ["--death-timeout", str(DEATH_TIMEOUT_S)]
        address = self._cluster.scheduler_address
        return [*worker, address, *self._credentials, *options, *timeout]

    def connected(self) -> int:
        """Number of workers."""
        return len(self.client.nthreads())

    def close(self) -> None:
        """The workers end by themselves."""
        self.client.close()
        self._cluster.close()
        self._folder.cleanup()


def _temporary_security() -> Any:
    """A key and a certificate, valid for this cluster only."""
    from distributed import Security

    try:
        return Security.temporary()
    except ImportError:
        text = "a Dask cluster needs cryptography, which is not installed in this environment"
        raise GpuError(text, "unavailable") from None


def _write_credentials(security: Any, folder: Path) -> list[str]:
    """Options of a worker that name the files."""
    texts = {
        "--tls-ca-file": security.tls_ca_file,
        "--tls-cert": security.tls_worker_cert,
        "--tls-key": security.tls_worker_key,
    }
    for option, text in texts.items():
        (folder / f"{option[2:]}.pem").write_text(text)
    return [part for option in texts for part in (option, str(folder / f"{option[2:]}.pem"))]


def _credentials_in_environment(security: Any) -> dict[str, str]:
    """Dask's own configuration of a worker, which may have the texts in place of files."""
    prefix = "DASK_DISTRIBUTED__COMM__"
    return {
        f"{prefix}REQUIRE_ENCRYPTION": "true",
        f"{prefix}TLS__CA_FILE": security.tls_ca_file,
        f"{prefix}TLS__WORKER__CERT": security.tls_worker_cert,
        f"{prefix}TLS__WORKER__KEY": security.tls_worker_key,
    }


class IpyparallelBackend:
    """An ipyparallel controller, as a child of this kernel. Connections from other nodes are
    encrypted and need its CurveZMQ key.
    """

    def __init__(self, host: str | None) -> None:
        import ipyparallel

        remote = {} if host is None else {"controller_location": host, "controller_args": [CURVE]}
        self._cluster = ipyparallel.Cluster(n=0, controller_ip=host or LOOPBACK, **remote)
        self._cluster.start_controller_sync()
        self.client: Any = self._cluster.connect_client_sync()
        name = f"ipcontroller-{self._cluster.cluster_id}-engine.json"
        self._file = Path(self._cluster.profile_dir) / "security" / name
        self.environment = {} if host is None else {CONNECTION_INFO: self._file.read_text()}

    def worker_command(self) -> list[str]:
        """An engine that reads the controller's address from its file or its environment."""
        engine = [sys.executable, "-m", "ipyparallel.engine"]
        return engine if self.environment else [*engine, f"--file={self._file}"]

    def connected(self) -> int:
        """Number of engines."""
        return len(self.client.ids)

    def close(self) -> None:
        """The engines end by themselves."""
        self.client.close()
        self._cluster.stop_controller_sync()


BACKENDS: Final[dict[str, tuple[str, Callable[[str | None], Backend]]]] = {
    "dask": ("distributed", DaskBackend),
    "ipyparallel": ("ipyparallel", IpyparallelBackend),
}
"""Name -> (module that must be installed, class)."""


def own_address() -> str:
    """The address of this machine's default route. Raises GpuError: it has none."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(ANY_REMOTE)
            return str(probe.getsockname()[0])
        except OSError:
            text = "this node's address is not known: name the one that other nodes reach as `host`"
            raise GpuError(text, "invalid-input") from None


def open_backend(name: str | None, host: str | None) -> Backend:
    """Start a scheduler or controller; `name` None: of the first library that is installed.
    `host`: the address where workers on other nodes reach it; None: they run on this node.

    Raises:
        GpuError: the library is unknown or not installed.
    """
    if name is not None and name not in BACKENDS:
        raise GpuError(
            f"backend must be one of {', '.join(BACKENDS)}, got {name!r}", "invalid-input"
        )
    for one in [name] if name is not None else BACKENDS:
        module, start = BACKENDS[one]
        if importlib.util.find_spec(module) is not None:
            return start(host)
    if name is not None:
        text = f"a cluster needs {BACKENDS[name][0]}, which is not installed in this environment"
    else:
        text = (
            "a cluster needs distributed or ipyparallel; neither is installed in this environment"
        )
    raise GpuError(text, "unavailable")
