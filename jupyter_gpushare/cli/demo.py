"""`jupyter gpushare demo`: JupyterLab with scheduler, node agent and simulated GPUs in one process
and a temporary directory.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shutil
import signal
import socket
import sys
import tempfile
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import click

from jupyter_gpushare.cli.demo_notebooks import demo_notebook, kept_notebooks
from jupyter_gpushare.core.model.errors import GpuShareError, InvalidInput
from jupyter_gpushare.core.model.units import read_memory

__all__ = ["demo"]

TUTORIAL = "tutorial.ipynb"
NOTEBOOKS = (TUTORIAL, "second.ipynb", "third.ipynb")
SIDEBAR = "jupyter-gpushare"
"""Id of the sidebar in JupyterLab (labextension/src/panelWidget.tsx)."""


@click.command()
@click.option(
    "--gpus", type=click.IntRange(1, 64), default=2, show_default=True, help="Simulated GPUs."
)
@click.option("--gpu-memory", default="80GiB", show_default=True, help="Memory of each GPU.")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=8888,
    show_default=True,
    help="Port of JupyterLab; if it is in use, the next free one.",
)
@click.option("--ip", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--no-browser", is_flag=True, help="Do not open a browser.")
@click.option(
    "--policy", type=click.Path(dir_okay=False), help="A policy file instead of the demo's."
)
def demo(
    gpus: int, gpu_memory: str, port: int, ip: str, no_browser: bool, policy: str | None
) -> int:
    """Run JupyterLab with an embedded scheduler and simulated GPUs. Ctrl-C ends it."""
    try:
        from jupyterlab.labapp import LabApp
    except ImportError:
        raise GpuShareError(
            "the demo needs JupyterLab: pip install 'jupyter-gpushare[demo]'"
        ) from None
    if read_memory(gpu_memory, what="gpu-memory", needs_unit=True) <= 0:
        raise InvalidInput(f"gpu-memory must be more than 0, got {gpu_memory}", field="gpu-memory")
    _check_address(ip)
    with _folder() as folder, kept_notebooks(folder / "notebooks", NOTEBOOKS):
        file = _policy(folder, gpus, policy)
        _own_jupyter_folders(folder)
        config = _config(folder, file, gpus, gpu_memory, port, ip, no_browser)
        server = LabApp.initialize_server(argv=[], config=config)
        _handle_signals()
        import_module(
            "jupyter_gpushare.scheduler.embedded"
        )  # loaded before the URL is printed, so that the scheduler is ready at once
        _print_summary(server, folder, file, gpus, gpu_memory)
        with _findable(folder / "state"):
            server.start()
    return 0


def _check_address(ip: str) -> None:
    """Jupyter would print a traceback."""
    host = "" if ip == "*" else ip
    try:
        kind, _, _, _, address = socket.getaddrinfo(
            host or None, 0, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        with socket.socket(kind, socket.SOCK_STREAM) as tried:
            tried.bind(address)
    except OSError as error:
        raise InvalidInput(f"cannot listen on {ip}: {error.strerror}", field="ip") from None


@contextlib.contextmanager
def _folder() -> Iterator[Path]:
    """The temporary directory of one demo."""
    folder = Path(tempfile.mkdtemp(prefix="gpushare-demo-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def _findable(state: Path) -> Iterator[None]:
    """Lets commands such as `jupyter gpushare status` find the demo from any terminal of the same
    user; the newest demo is found.
    """
    from jupyter_gpushare.cli.discovery import DEMO, home

    link = home() / DEMO
    with contextlib.suppress(OSError):  # the demo works without a writable home directory
        link.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        link.unlink(missing_ok=True)
        link.symlink_to(state)
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            if link.readlink() == state:
                link.unlink()


def _policy(folder: Path, gpus: int, given: str | None) -> Path:
    """The policy file; a given one is used in place, so that changes to it take effect."""
    from jupyter_gpushare.scheduler.policy.policy_file import default_demo_policy, load_policy
    from jupyter_gpushare.server_extension.extension import local_user

    if given is not None:
        load_policy(given)
        return Path(given).resolve()
    file = folder / "gpushare.yaml"
    file.write_text(default_demo_policy(gpus, local_user()))
    return file


def _own_jupyter_folders(folder: Path) -> None:
    """Separates the demo from the user's own Jupyter settings."""
    notebooks = folder / "notebooks"
    for name in ("notebooks", "config", "runtime", "state", "settings", "workspaces"):
        (folder / name).mkdir(mode=0o700)
    for name in NOTEBOOKS:
        (notebooks / name).write_bytes(demo_notebook(name))
    _with_sidebar(folder / "workspaces")
    # no question whether JupyterLab may fetch news
    quiet = {
        "@jupyterlab/apputils-extension:notification": {
            "fetchNews": "false",
            "checkForUpdates": False,
        }
    }
    (folder / "config/labconfig").mkdir()
    (folder / "config/labconfig/default_setting_overrides.json").write_text(json.dumps(quiet))
    os.environ |= {
        "JUPYTER_CONFIG_DIR": str(folder / "config"),
        "JUPYTER_RUNTIME_DIR": str(folder / "runtime"),
        "JUPYTERLAB_SETTINGS_DIR": str(folder / "settings"),
        "JUPYTERLAB_WORKSPACES_DIR": str(folder / "workspaces"),
    }
    os.environ.pop("JUPYTER_TOKEN", None)


def _with_sidebar(workspaces: Path) -> None:
    """JupyterLab opens with the file browser and the GPU sidebar."""
    from jupyterlab_server.workspaces_handler import WorkspacesManager

    side = {"collapsed": False, "visible": True}
    layout = {
        "left": {**side, "current": "filebrowser", "widgets": ["filebrowser"]},
        "right": {**side, "current": SIDEBAR, "widgets": [SIDEBAR]},
    }
    workspace = {"data": {"layout-restorer:data": layout}, "metadata": {"id": "default"}}
    WorkspacesManager(str(workspaces)).save("default", json.dumps(workspace))


def _config(
    folder: Path, policy: Path, gpus: int, gpu_memory: str, port: int, ip: str, no_browser: bool
) -> Any:
    from traitlets.config import Config

    from jupyter_gpushare.server_extension.extension import local_user

    return Config(
        ServerApp={
            "jpserver_extensions": {"jupyterlab": True, "jupyter_gpushare": True},
            "ip": ip,
            "port": port,
            "open_browser": not no_browser,
            "root_dir": str(folder / "notebooks"),
            "allow_root": os.geteuid() == 0,
            "answer_yes": True,
            "log_level": "WARN",
        },
        # a token of our own: Jupyter prints the addresses only of one that it made itself
        IdentityProvider={"token": secrets.token_hex(24)},
        LabApp={
            "default_url": f"/lab/tree/{TUTORIAL}",
            "log_level": "WARN",
            "open_browser": not no_browser,
            # the defaults were computed when LabApp was imported
            "user_settings_dir": str(folder / "settings"),
            "workspaces_dir": str(folder / "workspaces"),
        },
        GpuShareExtension={
            "scheduler_url": "",  # not $GPUSHARE_SCHEDULER
            "agent_socket": "",
            "simulate": f"A100:{gpus}",
            "simulated_gpu_memory": gpu_memory,
            "state_dir": str(folder / "state"),
            "policy_file": str(policy),
            "user": local_user(),
        },
    )


def _handle_signals() -> None:
    """Handles SIGINT and SIGHUP like SIGTERM: without a terminal, Jupyter would not end its kernels
    on SIGINT.
    """
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.getsignal(signal.SIGTERM))


def _print_summary(server: Any, folder: Path, policy: Path, gpus: int, gpu_memory: str) -> None:
    """Prints the one URL, of the tutorial (the port is bound by now), the policy, and that the
    GPUs are simulated.
    """
    root, token = server.connection_url.split("?")[0], server.identity_provider.token
    click.echo(f"JupyterLab with {gpus} simulated GPUs of {gpu_memory}: no real GPU is used.")
    click.echo(f"  open    {root}lab/tree/{TUTORIAL}?token={token}")
    click.echo(f"  policy  {policy} (changes take effect at once)")
    click.echo(f"  files   {folder / 'notebooks'} (changed ones are kept at exit)")
    command = f"{_jupyter()} gpushare status"
    click.echo(f"  Ctrl-C ends it. In another terminal: {command}, or top in place of status.")
    sys.stdout.flush()


def _jupyter() -> str:
    """The program as a new terminal finds it: `make demo` activates no environment."""
    activated = {os.environ.get("VIRTUAL_ENV"), os.environ.get("CONDA_PREFIX"), sys.base_prefix}
    return "jupyter" if sys.prefix in activated else str(Path(sys.prefix, "bin/jupyter"))
