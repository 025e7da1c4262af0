"""JupyterLab servers for browser tests, each with its own port and directory."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from jupyter_gpushare.scheduler.policy.policy_file import default_demo_policy
from jupyter_gpushare.server_extension.extension import local_user
from tests.workers import free_port

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
START_S = 90
STOP_S = 30
URL = re.compile(r"https?://[\w.]+:\d+/\S*token=\S+")


@contextmanager
def tutorial(*options: str) -> Iterator[str]:
    """`jupyter gpushare demo`; yields the URL that it prints, of the tutorial, with its token."""
    with TemporaryDirectory(prefix="gpushare-ui-") as folder:
        command = [
            sys.executable,
            "-m",
            "jupyter_gpushare.cli",
            "demo",
            "--no-browser",
            "--port",
            str(free_port()),
            *options,
        ]
        with running(command, Path(folder)) as url:
            yield url


@contextmanager
def demo(*options: str) -> Iterator[str]:
    """The same; yields the URL of JupyterLab without a notebook."""
    with tutorial(*options) as url:
        yield url.replace("/tree/tutorial.ipynb", "")


@contextmanager
def demo_without_turns() -> Iterator[str]:
    """The demo in which notebooks keep their shares, so that another one waits."""
    with TemporaryDirectory(prefix="gpushare-ui-") as folder:
        policy = Path(folder) / "gpushare.yaml"
        text = default_demo_policy(2, local_user())
        policy.write_text(
            text.replace("time_sharing: {enabled: true", "time_sharing: {enabled: false")
        )
        with demo("--policy", str(policy)) as url:
            yield url


@contextmanager
def scripted() -> Iterator[str]:
    """JupyterLab with the API of scripted_server.py; yields its URL with its token."""
    extensions = {
        "ServerApp": {"jpserver_extensions": {"jupyter_gpushare": False, "scripted_server": True}}
    }
    with TemporaryDirectory(prefix="gpushare-ui-") as folder:
        (work := Path(folder) / "work").mkdir()
        command = [
            sys.executable,
            str(HERE / "scripted_server.py"),
            "--no-browser",
            f"--port={free_port()}",
            "--allow-root",
            f"--ServerApp.root_dir={work}",
            "--IdentityProvider.token=scripted",
        ]
        # Jupyter Server may hang when it stops while one of its kernels is half a second old
        with running(command, Path(folder), extensions, must_end=False) as url:
            yield url.replace("token=...", "token=scripted")  # a configured token is not printed


@contextmanager
def running(
    command: list[str],
    folder: Path,
    server_config: dict[str, object] | None = None,
    *,
    must_end: bool = True,
) -> Iterator[str]:
    """A server process that prints its URL. SIGTERM must end it if `must_end`."""
    config = folder / "config"
    config.mkdir()
    # the tests use window.jupyterapp
    shown = {"JupyterNotebookApp": {"expose_app_in_browser": True}}
    (config / "jupyter_lab_config.json").write_text(
        json.dumps({"LabApp": {"expose_app_in_browser": True}})
    )
    (config / "jupyter_server_config.json").write_text(json.dumps(shown | (server_config or {})))
    env = {
        **os.environ,
        "JUPYTER_CONFIG_DIR": str(config),
        "JUPYTER_CONFIG_PATH": str(config),  # the demo has a config directory of its own
        "JUPYTER_DATA_DIR": str(folder / "data"),
        "JUPYTER_RUNTIME_DIR": str(folder / "run"),
        "PYTHONPATH": os.pathsep.join([str(HERE), str(ROOT)]),
        "JUPYTER_PATH": str(built_extension(folder)),
        "PYTHONUNBUFFERED": "1",
    }
    log = folder / "log.txt"
    with log.open("w") as out:
        process = subprocess.Popen(
            command,
            cwd=folder,
            env=env,
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        yield url_of(process, log)
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(STOP_S if must_end else 5)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            if must_end:
                raise


def built_extension(folder: Path) -> Path:
    """A data directory with the front end that was built in this checkout; it is searched first."""
    extensions = folder / "share" / "labextensions"
    extensions.mkdir(parents=True)
    (extensions / "jupyter-gpushare").symlink_to(ROOT / "jupyter_gpushare" / "labextension")
    return folder / "share"


def url_of(process: subprocess.Popen[bytes], log: Path) -> str:
    """The first URL with a token that the process prints and that responds."""
    from time import monotonic, sleep
    from urllib.request import urlopen

    end = monotonic() + START_S
    while monotonic() < end:
        if process.poll() is not None:
            raise RuntimeError(f"the server ended with {process.returncode}:\n{log.read_text()}")
        found = URL.search(log.read_text())
        if found is not None:
            try:
                urlopen(found[0], timeout=60).close()
                return found[0]
            except OSError:
                pass
        sleep(0.2)  # another process's start has no event to await
    raise TimeoutError(f"no URL within {START_S} s:\n{log.read_text()}")


def run_script(script: str, url: str, *arguments: str, limit_s: int = 400) -> str:
    """Run one browser script; returns its output, which explains a failure."""
    done = subprocess.run(
        ["node", str(HERE / script), url, *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=limit_s,
        check=False,
    )
    assert done.returncode == 0, f"{script}:\n{done.stdout}\n{done.stderr}"
    return done.stdout
