"""The part of a cluster that runs in this kernel, and the command that each pod runs. Dask and
ipyparallel are imported on first use; neither is required.
"""

from __future__ import annotations

import importlib.util
import logging
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, Protocol

from ..rpc import GpuError

__all__ = ["Backend", "open_backend"]

DEATH_TIMEOUT_S: Final = 60
"""A Dask worker whose scheduler does not answer for so long ends."""
LOOPBACK: Final = "127.0.0.1"


class Backend(Protocol):
    """A running scheduler or controller. `client`: what user code works with."""

    client: Any

    def worker_command(self) -> list[str]: ...
    def connected(self) -> int: ...
    def close(self) -> None: ...


class DaskBackend:
    """A Dask scheduler in this kernel. It uses TLS with certificates of its own: all users of the
    machine can connect to loopback, and a Dask scheduler runs the code of its clients.
    """

    def __init__(self) -> None:
        from distributed import Client, Scheduler, SpecCluster

        security = _temporary_security()
        self._folder = tempfile.TemporaryDirectory(prefix="gpushare-dask-")  # of this user alone
        self._credentials = _write_credentials(security, Path(self._folder.name))
        options = {"host": LOOPBACK, "port": 0, "dashboard": False}
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


class IpyparallelBackend:
    """An ipyparallel controller, as a child of this kernel."""

    def __init__(self) -> None:
        import ipyparallel

        self._cluster = ipyparallel.Cluster(n=0, controller_ip=LOOPBACK)
        self._cluster.start_controller_sync()
        self.client: Any = self._cluster.connect_client_sync()

    def worker_command(self) -> list[str]:
        """An engine that reads the controller's address from its file."""
        file = f"ipcontroller-{self._cluster.cluster_id}-engine.json"
        folder = self._cluster.profile_dir
        return [sys.executable, "-m", "ipyparallel.engine", f"--file={folder}/security/{file}"]

    def connected(self) -> int:
        """Number of engines."""
        return len(self.client.ids)

    def close(self) -> None:
        """The engines end by themselves."""
        self.client.close()
        self._cluster.stop_controller_sync()


BACKENDS: Final[dict[str, tuple[str, Callable[[], Backend]]]] = {
    "dask": ("distributed", DaskBackend),
    "ipyparallel": ("ipyparallel", IpyparallelBackend),
}
"""Name -> (module that must be installed, class)."""


def open_backend(name: str | None) -> Backend:
    """Start a scheduler or controller; None: of the first library that is installed.

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
            return start()
    if name is not None:
        text = f"a cluster needs {BACKENDS[name][0]}, which is not installed in this environment"
    else:
        text = (
            "a cluster needs distributed or ipyparallel; neither is installed in this environment"
        )
    raise GpuError(text, "unavailable")
