"""A real JupyterHub with its proxy: the scheduler as one of its services, one node agent, and two
users in two groups.

All processes run as the unix user of the test (SimpleLocalProcessSpawner), so only the Hub and the
scheduler separate the users.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import secrets
import signal
import subprocess
import sys
from pathlib import Path

import psutil

from tests.story.front_end import Rest, RestError, eventually
from tests.story.jupyter_process import command_line, processes_of
from tests.workers import free_port

ROOT = Path(__file__).parents[2]
PROXY = ROOT / "labextension/node_modules/.bin/configurable-http-proxy"
POLICY = """\
departments: [{name: research, pools: {default: {gpu: {quota: 2}}}}]
projects:
  - name: vision
    department: research
    members: ["group:vision"]
    pools: {default: {gpu: {quota: 1}}}
defaults: {notice: 5s}
"""
LANGUAGE = {"department": "research", "gpu": {"quota": 1}}
"""Properties of the group `language`: the policy file does not have this project."""
HUB_CONFIG = """\
import json
given = json.load(open({given!r}))
c.JupyterHub.bind_url = given["url"]
c.JupyterHub.hub_port = given["hub_port"]
c.JupyterHub.db_url = "sqlite:///" + given["folder"] + "/hub.sqlite"
c.JupyterHub.cookie_secret_file = given["folder"] + "/cookie_secret"
c.ConfigurableHTTPProxy.command = [given["proxy"]]
c.ConfigurableHTTPProxy.api_url = given["proxy_api"]
c.ConfigurableHTTPProxy.pid_file = given["folder"] + "/proxy.pid"
c.JupyterHub.authenticator_class = "dummy"
c.Authenticator.allow_all = True
c.Authenticator.admin_users = {{"lisa"}}
c.JupyterHub.spawner_class = "simple"
c.SimpleLocalProcessSpawner.home_dir_template = given["folder"] + "/homes/{{username}}"
c.Spawner.cmd = given["singleuser"]
c.Spawner.args = ["--allow-root"]
c.Spawner.environment = given["environment"]
c.Spawner.start_timeout = c.Spawner.http_timeout = 120
c.JupyterHub.load_groups = given["groups"]

# -- as in docs/how-to/jupyterhub.md --
c.JupyterHub.services = [
    {{
        "name": "gpushare",
        "url": given["service"],
        "command": given["command"],
        "environment": given["environment"],
    }},
    {{"name": "tester", "api_token": given["token"]}},
    {{"name": "beside", "api_token": given["beside"]}},
]
ACCESS = "access:services!service=gpushare"
c.JupyterHub.load_roles = [
    {{
        "name": "gpushare",
        "scopes": ["read:groups", "list:groups"],
        "services": ["gpushare", "beside"],
    }},
    {{"name": "gpu-users", "scopes": [ACCESS], "groups": ["vision", "language"]}},
    {{
        "name": "tester",
        "scopes": ["admin:users", "admin:servers", "tokens", "access:servers"],
        "services": ["tester"],
    }},
]
c.Spawner.server_token_scopes = ["users:activity!user", "access:servers!server", ACCESS]
"""


PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None)


def _end_with_us() -> None:
    """The kernel terminates this process when the test that started it has ended."""
    _libc.prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


class Person(Rest):
    """A user of the Hub: their Jupyter server, and the scheduler through the Hub's proxy."""

    def __init__(self, port: int, token: str, name: str) -> None:
        super().__init__(port, token, f"/user/{name}/")
        self.name = name
        self.scheduler = Rest(port, token, "/services/gpushare/api/v1/")

    def refused(
        self, verb: str, path: str, body: object = None, *, scheduler: bool = False
    ) -> tuple[int, dict]:
        """Status and error of a call that must fail."""
        try:
            answer = (self.scheduler if scheduler else self).rest(verb, path, body)
        except RestError as error:
            with contextlib.suppress(ValueError):
                return error.status, json.loads(error.body).get("error", {})
            return error.status, {}
        raise AssertionError(f"{verb} {path} was permitted to {self.name}: {answer}")


class HubWorld:
    """`names`: of the two users, in the groups vision and language."""

    policy = POLICY
    more_config = ""
    """Appended to the Hub's configuration."""

    def __init__(self, folder: Path, names: tuple[str, str] = ("alice", "bob")) -> None:
        self.folder, self.port, self.names = folder, free_port(), names
        self.state = folder / "state"
        self.service = f"http://127.0.0.1:{free_port()}"
        self.hub = Rest(self.port, secrets.token_hex(16), "/hub/api/")
        self.beside_token = secrets.token_hex(16)
        self.processes: list[subprocess.Popen] = []
        self.people: dict[str, Person] = {}
        for name in ("state", "config", "data/kernels/half", "runtime", "homes"):
            (folder / name).mkdir(parents=True)

    @property
    def groups(self) -> dict[str, object]:
        alice, bob = self.names
        return {
            "vision": {"users": [alice]},
            "language": {"users": [bob], "properties": {"gpushare": LANGUAGE}},
        }

    @property
    def server_config(self) -> dict[str, str]:
        """Configuration of every user's server."""
        return {
            "scheduler_url": f"http://127.0.0.1:{self.port}/services/gpushare",
            "state_dir": str(self.state),
        }

    def singleuser(self) -> str:
        """The Python of the users' servers and kernels."""
        return sys.executable

    @property
    def environment(self) -> dict[str, str]:
        f = self.folder
        mine = {
            "JUPYTER_CONFIG_DIR": f / "config",
            "JUPYTER_DATA_DIR": f / "data",
            "JUPYTER_RUNTIME_DIR": f / "runtime",
            "STORY_WORLD": f,
            "IPYTHONDIR": f / "ipython",
            "PATH": os.environ["PATH"],
            "GPUSHARE_STATE": self.state,
        }
        return {name: str(value) for name, value in mine.items()}

    def _write(self) -> None:
        f, python = self.folder, sys.executable
        (f / "gpushare.yaml").write_text(self.policy)
        argv = [self.singleuser(), "-m", "ipykernel_launcher", "-f", "{connection_file}"]
        spec = {"argv": argv, "display_name": "half", "language": "python"}
        spec["metadata"] = {
            "kernel_provisioner": {
                "provisioner_name": "gpushare-provisioner",
                "config": {"gpu": 0.5},
            }
        }
        (f / "data/kernels/half/kernel.json").write_text(json.dumps(spec))
        server = {
            "ServerApp": {"jpserver_extensions": {"jupyter_gpushare": True}},
            "GpuShareExtension": self.server_config,
        }
        (f / "config/jupyter_server_config.json").write_text(json.dumps(server))
        command = [
            python,
            "-m",
            "jupyter_gpushare.cli",
            "scheduler",
            "--state-dir",
            str(self.state),
            "--policy",
            str(f / "gpushare.yaml"),
        ]
        given = {
            "folder": str(f),
            "url": f"http://127.0.0.1:{self.port}/",
            "hub_port": free_port(),
            "proxy": str(PROXY),
            "proxy_api": f"http://127.0.0.1:{free_port()}",
            "environment": self.environment,
            "singleuser": [self.singleuser(), "-m", "jupyterhub.singleuser"],
            "service": self.service,
            "command": command,
            "token": self.hub.token,
            "beside": self.beside_token,
            "groups": self.groups,
        }
        (f / "given.json").write_text(json.dumps(given))
        (f / "hub.py").write_text(HUB_CONFIG.format(given=str(f / "given.json")) + self.more_config)

    def start(self) -> HubWorld:
        self._write()
        self._start("hub", "-m", "jupyterhub", "-f", str(self.folder / "hub.py"))
        eventually(lambda: self.hub.rest("GET", "users") is not None, "the Hub answers", 120)
        eventually(lambda: (self.state / "scheduler.json").exists(), "the scheduler decides", 120)
        self._start_agent()
        for name in self.names:
            self.people[name] = self.person(name)
            self.hub.rest("POST", f"users/{name}/server")
        for person in self.people.values():
            eventually(
                lambda: person.status()["agent"]["reachable"],  # noqa: B023
                f"{person.name}'s server is up",
                120,
            )
            eventually(
                lambda: person.status()["scheduler"]["reachable"],  # noqa: B023
                f"{person.name} reaches the scheduler",
                30,
            )
            eventually(lambda: len(person.devices()) == 1, "the node is known")  # noqa: B023
        return self

    def person(self, name: str) -> Person:
        """With a token as users create it on the Hub's page."""
        return Person(
            self.port,
            self.hub.rest("POST", f"users/{name}/tokens", {"expires_in": 3600})["token"],
            name,
        )

    @property
    def agent_options(self) -> list[str]:
        return ["--state-dir", str(self.state)]

    def _start_agent(self) -> None:
        cli = ("-m", "jupyter_gpushare.cli")
        token = self.folder / "agent.token"
        subprocess.run(
            [sys.executable, *cli, "token", "create", "box", "--scope", "agent", "--output", token],
            env=self._env(),
            check=True,
        )
        self._start(
            "agent",
            *cli,
            "agent",
            "--scheduler",
            self.service,
            "--node",
            "box",
            "--simulate",
            "A100:1",
            "--token-file",
            str(token),
            *self.agent_options,
        )

    def start_beside(self) -> str:
        """Start a scheduler that is no service of the Hub but has its address; returns its URL."""
        state, token = self.folder / "beside", self.folder / "beside.token"
        token.write_text(self.beside_token)
        config = {
            "hub_api_url": f"http://127.0.0.1:{self.port}/hub/api",
            "hub_api_token_file": str(token),
            "port": 0,
        }
        (self.folder / "beside.json").write_text(json.dumps({"SchedulerApp": config}))
        self._start(
            "beside",
            "-m",
            "jupyter_gpushare.cli",
            "scheduler",
            "--config",
            str(self.folder / "beside.json"),
            "--state-dir",
            str(state),
        )
        eventually(
            lambda: (state / "scheduler.json").exists(), "the scheduler beside the Hub decides", 60
        )
        return str(json.loads((state / "scheduler.json").read_text())["url"])

    def _env(self) -> dict[str, str]:
        clean = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("JUPYTER", "GPUSHARE", "JPY"))
        }
        return clean | self.environment

    def _start(self, name: str, *arguments: str) -> None:
        with (self.folder / f"{name}.log").open("ab") as log:
            argv = [sys.executable, *arguments]
            made = subprocess.Popen(
                argv,
                env=self._env(),
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                cwd=self.folder,
                start_new_session=True,
                preexec_fn=_end_with_us,  # noqa: PLW1509 - one system call, against orphaned Hubs
            )
        self.processes.append(made)

    def commands(self) -> str:
        """The command lines of all processes, as every user of the machine sees them."""
        return "\n".join(command_line(process) for process in processes_of(self.folder))

    def logs(self) -> str:
        return "\n".join(
            f"==== {path.name}\n{path.read_text(errors='replace')[-8000:]}"
            for path in sorted(self.folder.glob("*.log"))
        )

    def stop(self) -> None:
        for person in self.people.values():
            for notebook in person.notebooks:
                notebook.ws.close()
        for process in reversed(self.processes):
            process.send_signal(signal.SIGTERM)
        for process in self.processes:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(30)
        for process in processes_of(self.folder):
            with contextlib.suppress(psutil.Error):
                process.kill()
        for process in self.processes:
            process.wait()
