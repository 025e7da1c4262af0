"""A machine with several unix users: scheduler and root agent as processes, on simulated GPUs.

Callers are real unix users: they connect to the sockets with their own credentials, and their
commands run with their own rights.
"""

from __future__ import annotations

import contextlib
import encodings.idna  # noqa: F401 - cannot be imported later while this process acts as another user
import http.client
import json
import os
import pwd
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import psutil
import pytest

from tests.agent.simulated_node import acting_as
from tests.workers import add_unix_user, free_port, remove_unix_user

__all__ = ["AgentSocket", "Answer", "CommandEnd", "Machine", "as_root", "eventually"]

ROOT = Path(__file__).parents[2]
CLI = (sys.executable, "-m", "jupyter_gpushare.cli")
TIMEOUT_S = 60
PROJECTS = {"alice": "vision", "ann": "vision", "bob": "language", "lisa": "language"}
as_root = pytest.mark.skipif(os.getuid() != 0, reason="only root can act as other unix users")


def eventually(condition: Callable[[], Any], what: str, timeout: float = TIMEOUT_S) -> Any:
    """The first true result."""
    deadline = time.monotonic() + timeout
    while not (result := condition()):
        assert time.monotonic() < deadline, f"not within {timeout} s: {what}"
        time.sleep(0.02)
    return result


class Answer(NamedTuple):
    """Of an HTTP call. Status 0: the service closed the connection without an answer."""

    status: int
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)

    def error(self) -> dict[str, str]:
        return self.json()["error"]


class CommandEnd(NamedTuple):
    """Of a batch workload."""

    exit_code: int | None
    message: str
    output: str


class UnixHTTPConnection(http.client.HTTPConnection):
    """A connection to a unix socket with the credentials of a user."""

    def __init__(self, path: Path, user: pwd.struct_passwd | None) -> None:
        super().__init__("localhost", timeout=TIMEOUT_S)
        self._path, self._user = path, user

    def connect(self) -> None:
        self.sock = connect(self._path, self._user)


def connect(path: Path, user: pwd.struct_passwd | None) -> socket.socket:
    """The other side sees the user's credentials at this moment."""
    made = socket.socket(socket.AF_UNIX)
    with acting_as(user):
        made.connect(str(path))  # without a time-out: that would fail while the backlog is full
    made.settimeout(TIMEOUT_S)
    return made


class AgentSocket:
    """A connection to the agent: one JSON object per line."""

    def __init__(self, path: Path, user: pwd.struct_passwd | None) -> None:
        self.sock = connect(path, user)
        self._lines = self.sock.makefile("rb")

    def send(self, **body: object) -> None:
        self.send_raw(json.dumps(body).encode() + b"\n")

    def send_raw(self, data: bytes) -> None:
        self.sock.sendall(data)

    def read(self) -> dict[str, Any] | None:
        """The next message; None: the agent closed the connection."""
        try:
            line = self._lines.readline()
        except ConnectionError:
            return None
        return json.loads(line) if line else None

    def until(self, kind: str, **fields: object) -> dict[str, Any]:
        """The next message of this type with these fields."""
        while (message := self.read()) is not None:
            if message["type"] == kind and fields.items() <= message.items():
                return message
        raise AssertionError(f"the connection ended without {kind}")

    def hello(self) -> list[dict[str, Any]]:
        """Introduce this connection as a Jupyter server. Returns the kernels of its user."""
        self.send(type="server_hello", server=secrets.token_hex(4), pid=os.getpid())
        return self.until("server_welcome")["kernels"]

    def register(self, kernel_id: str, **more: object) -> dict[str, Any]:
        number = secrets.randbelow(1 << 30)
        self.send(type="register_kernel", n=number, kernel_id=kernel_id, **more)
        return self.until("registered", n=number)

    def close(self) -> None:
        self._lines.close()
        self.sock.close()


class Machine:
    """Starts and stops the processes; acts as its users. `users`: name in tests -> account."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.socket, self.agent_path = folder / "run/s.sock", folder / "agent/agent.sock"
        self.port = free_port()
        self.users: dict[str, pwd.struct_passwd] = {}
        self.scheduler: subprocess.Popen[bytes] | None = None
        self.agent: subprocess.Popen[bytes] | None = None
        self._connections: list[AgentSocket] = []
        (folder / "run").mkdir()

    # ---- processes -------------------------------------------------------------------------------

    def start(self) -> None:
        self._add_users()
        self._write_policy()
        self.start_scheduler()
        self.start_agent()

    def _add_users(self) -> None:
        mark = secrets.token_hex(3)
        for who in PROJECTS:
            name = f"gs-{who}-{mark}"
            home = self.folder / name
            add_unix_user(name, "--home-dir", str(home), "--no-create-home")
            self.users[who] = pwd.getpwnam(name)
            home.mkdir(mode=0o700)
            self.give(who, home)

    def _write_policy(self) -> None:
        projects = []
        for project in sorted(set(PROJECTS.values())):
            members = [self.name(who) for who in PROJECTS if PROJECTS[who] == project]
            pools = {"default": {"gpu": {"quota": 2}}}
            projects.append({"name": project, "members": members, "pools": pools})
        policy = {"projects": projects, "admins": [self.name("lisa")]}
        (self.folder / "gpushare.yaml").write_text(json.dumps(policy))

    def start_scheduler(self) -> None:
        self.scheduler = self._spawn(
            "scheduler",
            *("scheduler", "--state-dir", self.folder / "scheduler-state"),
            *("--policy", self.folder / "gpushare.yaml"),
            *("--socket", self.socket, "--port", self.port),
        )
        eventually(self.is_ready, "the scheduler is ready")

    def start_agent(self) -> None:
        self.agent = self._spawn(
            "agent",
            *("agent", "--users", "all", "--run-commands", "users", "--simulate", "A100:2"),
            *("--state-dir", self.folder / "agent-state", "--socket", self.agent_path),
            *("--scheduler", f"unix://{self.socket}", "--node", "n0", "--copy-rate", "0"),
        )
        eventually(self.node_is_ready, "the node is ready")

    def _spawn(self, log: str, *arguments: object) -> subprocess.Popen[bytes]:
        clean = {}
        for name, value in os.environ.items():
            if not name.startswith(("GPUSHARE", "JUPYTER")):
                clean[name] = value
        clean |= {"PYTHONPATH": str(ROOT), "HOME": str(self.folder), "PYTHONUNBUFFERED": "1"}
        with self.log(log).open("ab") as file:
            return subprocess.Popen(
                [*CLI, *map(str, arguments)],
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
                cwd="/",
                env=clean,
                start_new_session=True,
            )

    def is_ready(self) -> bool:
        assert self.scheduler is not None
        assert self.scheduler.poll() is None, self.logs()
        return self.socket.exists() and self.call(None, "GET", "/readyz").status == 200

    def node_is_ready(self) -> bool:
        assert self.agent is not None
        assert self.agent.poll() is None, self.logs()
        nodes = self.call(None, "GET", "/api/v1/nodes").json()["nodes"]
        return self.agent_path.exists() and [node["status"] for node in nodes] == ["Ready"]

    def kill_agent(self) -> None:
        assert self.agent is not None
        self.agent.kill()
        self.agent.wait()

    def rss(self, process: subprocess.Popen[bytes] | None) -> int:
        """Resident memory in bytes."""
        assert process is not None
        return psutil.Process(process.pid).memory_info().rss

    def stop(self) -> None:
        for connection in self._connections:
            connection.close()
        for process in (self.agent, self.scheduler):
            if process is not None and process.poll() is None:
                process.terminate()
                try:
                    process.wait(20)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()
        for user in self.users.values():
            self._end_processes(user)
            remove_unix_user(user.pw_name)

    @staticmethod
    def _end_processes(user: pwd.struct_passwd) -> None:
        """Of an account that only this machine has."""
        for process in psutil.process_iter(["uids"]):
            uids = process.info["uids"]
            if uids is not None and uids.real == user.pw_uid:
                process.kill()

    def log(self, name: str) -> Path:
        return self.folder / f"{name}.log"

    def logs(self) -> str:
        found = []
        for path in sorted(self.folder.glob("*.log")):
            found.append(f"==== {path.name}\n{path.read_text(errors='replace')[-6000:]}")
        return "\n".join(found)

    # ---- users -----------------------------------------------------------------------------------

    def name(self, who: str) -> str:
        return self.users[who].pw_name

    def home(self, who: str) -> Path:
        return Path(self.users[who].pw_dir)

    def give(self, who: str, path: Path) -> None:
        os.lchown(path, self.users[who].pw_uid, self.users[who].pw_gid)

    def write(self, who: str, path: Path, text: str, mode: int = 0o644) -> Path:
        """A file of this user."""
        path.write_text(text)
        path.chmod(mode)
        self.give(who, path)
        return path

    # ---- calls -----------------------------------------------------------------------------------

    def call(self, who: str | None, verb: str, path: str, body: object = None) -> Answer:
        """A call to the scheduler's socket; None: as root. `body`: bytes are sent unchanged."""
        return _call(self.connection(who), verb, path, body, {})

    def connection(self, who: str | None) -> UnixHTTPConnection:
        """To the scheduler's socket, for unusual requests."""
        return UnixHTTPConnection(self.socket, self.users[who] if who is not None else None)

    def call_http(
        self, token: str | None, verb: str, path: str, body: object = None, **headers: str
    ) -> Answer:
        """The same on the network, with a token."""
        sent = dict(headers)
        if token is not None:
            sent["Authorization"] = f"Bearer {token}"
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=TIMEOUT_S)
        return _call(connection, verb, path, body, sent)

    def token(self, who: str, scope: str = "person") -> str:
        request = {"scope": scope, "name": self.name(who) if who in self.users else who}
        made = self.call(None, "POST", "/api/v1/tokens", request)
        assert made.status == 200, made
        return made.json()["token"]

    def submit(self, who: str | None, **request: object) -> Answer:
        request.setdefault("id", f"w-{secrets.token_hex(5)}")
        request.setdefault("pods", [{"gpu": 0.1}])
        return self.call(who, "POST", "/api/v1/workloads", request)

    def end(self, id_: str) -> None:
        answer = self.call(None, "DELETE", f"/api/v1/workloads/{id_}")
        assert answer.status == 200, answer

    def workload(self, id_: str) -> dict[str, Any]:
        return self.call(None, "GET", f"/api/v1/workloads/{id_}").json()

    def state(self, id_: str) -> str:
        """Of a workload. Those of kernels are not shown any more once they have ended."""
        answer = self.call(None, "GET", f"/api/v1/workloads/{id_}")
        return answer.json()["state"] if answer.status == 200 else "ended"

    def server_of(self, who: str | None) -> AgentSocket:
        """A connection to the agent as this user's Jupyter server; None: as root."""
        made = AgentSocket(self.agent_path, self.users[who] if who is not None else None)
        self._connections.append(made)
        return made

    # ---- commands --------------------------------------------------------------------------------

    def begin(self, who: str, argv: list[str], cwd: str = "/", **env: str) -> str:
        """Submit a command. Returns the id of its workload."""
        command = {"argv": argv, "cwd": cwd, "env": env}
        answer = self.submit(who, command=command)
        while answer.status == 429:
            time.sleep(0.2)
            answer = self.submit(who, command=command)
        assert answer.status == 200, answer
        return answer.json()["id"]

    def run(self, who: str, argv: list[str], cwd: str = "/", **env: str) -> CommandEnd:
        """Run a command to its end."""
        return self.finish(self.begin(who, argv, cwd, **env))

    def finish(self, id_: str) -> CommandEnd:
        view = eventually(lambda: self._ended(id_), f"the end of {id_}")
        return CommandEnd(view["exit_code"], view["message"], self.output(id_))

    def _ended(self, id_: str) -> dict[str, Any] | None:
        view = self.workload(id_)
        return view if view["state"] == "ended" else None

    def output(self, id_: str) -> str:
        logs = self.call(None, "GET", f"/api/v1/workloads/{id_}/logs").json()
        return "".join(line["text"] for line in logs["lines"])


def _call(
    connection: http.client.HTTPConnection,
    verb: str,
    path: str,
    body: object,
    headers: dict[str, str],
) -> Answer:
    sent = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
    try:
        with contextlib.suppress(BrokenPipeError):  # a long body may be refused before its end
            connection.request(verb, path, body=sent, headers=headers)
        response = connection.getresponse()
        return Answer(response.status, response.read())
    except ConnectionError:
        return Answer(0, b"")
    finally:
        connection.close()


@contextmanager
def running_machine() -> Iterator[Machine]:
    """The folder is readable by all users, unlike those of pytest."""
    folder = Path(tempfile.mkdtemp(prefix="gpushare-security-"))
    folder.chmod(0o755)
    machine = Machine(folder)
    try:
        machine.start()
        yield machine
    finally:
        machine.stop()
        sys.stdout.write(machine.logs())  # pytest shows it when a test fails
        shutil.rmtree(folder, ignore_errors=True)
