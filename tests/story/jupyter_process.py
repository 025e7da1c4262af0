"""A real Jupyter server with real kernels, driven like a front end: REST and one WebSocket per
notebook. Only the GPUs are simulated.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import psutil

from tests.story.front_end import TOKEN, Rest, eventually
from tests.workers import free_port

ROOT = Path(__file__).parents[2]
AGENT = (sys.executable, "-m", "jupyter_gpushare.cli", "agent")
POLICY = """\
node_pools:
  - {name: default, workloads_per_gpu: 4, placement: {gpu: binpack, cpu: binpack}}
departments:
  - {name: research, pools: {default: {gpu: {quota: 2}}}}
  - {name: teaching, pools: {default: {gpu: {quota: 0}}}}
projects:
  - {name: vision, department: research, pools: {default: {gpu: {quota: 1}}}}
  - {name: language, department: research, pools: {default: {gpu: {quota: 1}}}}
  - {name: course, department: teaching, pools: {default: {gpu: {quota: 0}}}}
defaults: {priority_class: interactive, notice: 5s, project: vision}
"""


SPECS = {
    "half": {"gpu": 0.5},
    "whole": {"gpu": 1.0, "project": "language"},
    "tenth": {"gpu": 0.1},
    "bad": {"gpu": "much"},
    "nowhere": {"gpu": 0.5, "project": "nope"},
    "limited": {"gpu": 0.25, "gpu_limit": 0.5},
    "build": {"gpu": 2.0, "priority_class": "build", "project": "course", "queue_anyway": True},
}


def processes_of(folder: Path) -> list[psutil.Process]:
    """All living processes of this test, found by its folder in their environment."""
    found = []
    for process in psutil.process_iter(["status"]):
        with contextlib.suppress(psutil.Error):
            if process.info["status"] != psutil.STATUS_ZOMBIE and process.environ().get(
                "STORY_WORLD"
            ) == str(folder):
                found.append(process)
    return found


def command_line(process: psutil.Process) -> str:
    """Its command line; "" if it has ended meanwhile."""
    with contextlib.suppress(psutil.Error):
        return " ".join(process.cmdline())
    return ""


class Server(Rest):
    """A Jupyter server: embedded, or `remote` with scheduler and agent as separate processes."""

    def __init__(
        self, folder: Path, *, remote: bool = False, gpus: int = 2, python: str = sys.executable
    ) -> None:
        """`python`: of the Jupyter server."""
        super().__init__(free_port())
        self.python = python
        self.folder, self.remote, self.gpus = folder, remote, gpus
        self.scheduler_port = free_port()
        self.state = folder / "state"
        self.processes: dict[str, subprocess.Popen] = {}
        for name in ("notebooks", "state", "config", "data/kernels", "runtime"):
            (folder / name).mkdir(parents=True)
        (folder / "gpushare.yaml").write_text(POLICY)
        self._write_kernelspecs()
        self._write_config()

    @property
    def env(self) -> dict[str, str]:
        f = self.folder
        mine = {
            "JUPYTER_CONFIG_DIR": f / "config",
            "JUPYTER_DATA_DIR": f / "data",
            "JUPYTER_RUNTIME_DIR": f / "runtime",
            "HOME": f,
            "IPYTHONDIR": f / "ipython",
            "STORY_WORLD": f,
            "JUPYTERHUB_API_TOKEN_FOR_TEST": "keep",
            "JUPYTERHUB_API_TOKEN": "secret",
        }
        clean = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("JUPYTER", "GPUSHARE", "JPY"))
        }
        if self.python != sys.executable:  # an environment without this tree
            mine["PYTHONPATH"] = ROOT
        return clean | {name: str(value) for name, value in mine.items()}

    def _write_kernelspecs(self) -> None:
        argv = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
        for name, config in {**SPECS, "plain": None}.items():
            spec = {"argv": argv, "display_name": name, "language": "python", "metadata": {}}
            if config:
                provisioner = {"provisioner_name": "gpushare-provisioner", "config": config}
                spec["metadata"] = {"kernel_provisioner": provisioner}
            self.kernelspec(name, spec)
        echo = [sys.executable, "-m", "pytest_jupyter.echo_kernel", "-f", "{connection_file}"]
        self.kernelspec("echo", {"argv": echo, "display_name": "echo", "language": "echo"})

    def kernelspec(self, name: str, spec: dict) -> None:
        folder = self.folder / "data/kernels" / name
        folder.mkdir(exist_ok=True)
        (folder / "kernel.json").write_text(json.dumps(spec))

    def _write_config(self) -> None:
        config = {
            "ServerApp": {
                "jpserver_extensions": {"jupyter_gpushare": True},
                "port": self.port,
                "port_retries": 0,
                "open_browser": False,
                "root_dir": str(self.folder / "notebooks"),
                "allow_root": True,
            },
            "IdentityProvider": {"token": TOKEN},
            "GpuShareExtension": self._settings(),
        }
        (self.folder / "config/jupyter_server_config.json").write_text(json.dumps(config))

    def _settings(self) -> dict[str, str]:
        if self.remote:
            return {
                "scheduler_url": f"http://127.0.0.1:{self.scheduler_port}",
                "state_dir": str(self.state),
                "scheduler_token_file": str(self.state / "admin.token"),
            }
        return {
            "policy_file": str(self.folder / "gpushare.yaml"),
            "simulate": str(self.gpus),
            "state_dir": str(self.state),
        }

    # ---- processes

    def start(self) -> Server:
        if self.remote:
            self.start_scheduler()
            self.start_agent()
        self.start_jupyter()
        eventually(
            lambda: self.status()["agent"]["reachable"] and self.status()["scheduler"]["reachable"],
            "everything reachable",
            60,
        )
        eventually(lambda: len(self.devices()) == self.gpus, "the node is known")
        return self

    def start_jupyter(self) -> None:
        self._start("jupyter", self.python, "-m", "jupyter_server")

    def start_scheduler(self) -> None:
        gpushare = (sys.executable, "-m", "jupyter_gpushare.cli")
        self._start(
            "scheduler",
            *gpushare,
            "scheduler",
            "--port",
            str(self.scheduler_port),
            "--policy",
            str(self.folder / "gpushare.yaml"),
            "--state-dir",
            str(self.state),
        )
        eventually(
            lambda: (self.state / "admin.token").exists() and self._listens(self.scheduler_port),
            "the scheduler listens",
        )

    def start_agent(self, *options: str) -> None:
        self.agent(*options, *self._agent_options(self.state))

    def start_other_agent(self, node: str) -> None:
        """The agent of another node of the cluster, on this machine."""
        options = ("--node", node, *self._agent_options(self.folder / node))
        self._start(f"agent of {node}", *AGENT, *options)

    def _agent_options(self, state: Path) -> tuple[str, ...]:
        return (
            *("--scheduler", f"http://127.0.0.1:{self.scheduler_port}"),
            *("--simulate", f"A100:{self.gpus}"),
            *("--state-dir", str(state)),
            *("--token-file", str(self.state / "admin.token")),
        )

    def agent(self, *options: str) -> None:
        """Start the node agent as a separate process."""
        self._start("agent", *AGENT, *options)

    @staticmethod
    def _listens(port: int) -> bool:
        with socket.socket() as sock:
            return sock.connect_ex(("127.0.0.1", port)) == 0

    def _start(self, name: str, *argv: str) -> None:
        with (self.folder / f"{name}.log").open("ab") as log:
            self.processes[name] = subprocess.Popen(
                argv,
                env=self.env,
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                cwd=self.folder,
                start_new_session=True,
            )

    def kill(self, name: str) -> None:
        """`kill -9`."""
        self.processes[name].kill()
        self.processes.pop(name).wait()

    def stop(self) -> None:
        """Terminate all processes; kill those that remain."""
        for one in self.notebooks:
            one.ws.close()
        for process in self.processes.values():
            process.send_signal(signal.SIGTERM)
        for process in self.processes.values():
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        for process in processes_of(self.folder):
            with contextlib.suppress(psutil.Error):
                process.kill()

    def logs(self) -> str:
        return "\n".join(
            f"==== {path.name}\n{path.read_text(errors='replace')[-6000:]}"
            for path in sorted(self.folder.glob("*.log"))
        )

    def nothing_is_left(self, *, within: float = 60.0) -> None:
        """No allocation, no GPU memory in use, no kernel process."""
        eventually(lambda: self.allocated() == 0, "no allocation", within)
        eventually(
            lambda: all(d["memory_mib"]["used"] == 0 for d in self.devices()),
            "no GPU memory in use",
            within,
        )
        self.no_kernels_are_left(within)

    def no_kernels_are_left(self, within: float) -> None:
        def kernels() -> list[str]:
            lines = [command_line(process) for process in processes_of(self.folder)]
            return [line for line in lines if "ipykernel" in line]

        eventually(lambda: not kernels(), "no kernel process left", within)
