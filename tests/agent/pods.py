"""Pods as a kubelet makes them, for tests by root: processes in cgroups with the names of pods, in
pid and mount namespaces of their own; and a node whose agent serves them.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from jupyter_gpushare.messages import Registered
from node_agent.system.process_owner import KubernetesPod
from tests.agent.simulated_node import FakeServer, World

__all__ = [
    "FakePod",
    "PodNode",
    "PodServer",
    "as_node_root",
    "hierarchies",
    "pods_problem",
    "public_folder",
]

ROOT = Path(__file__).parents[2]
USER = 1000
"""Of every notebook in Zero to JupyterHub."""
CONTAINER_CAPABILITIES = (
    "chown,dac_override,fowner,fsetid,kill,setgid,setuid,setpcap,net_bind_service,sys_chroot,"
    "setfcap"
)
"""What root has in a container that is not privileged (containerd's default, without mknod and raw
sockets).
"""
LEVELS = 5
"""Of cgroups of one pod, with a root of its own: a kubelet on this machine, as in tests/kube, ends
what it finds below its own root and does not know.
"""
ENTER = 'for each in $0; do echo $$ > "$each/cgroup.procs"; done; exec "$@"'
MOUNTS = """
mount --bind "$0" "$0" && mount -o remount,bind,ro "$0" && mount -t tmpfs tmpfs "$1" && shift
exec "$@"
"""


def hierarchies(version: int) -> list[Path]:
    """The mounted cgroup hierarchies of this version in which a process can be placed."""
    found = []
    for line in Path("/proc/self/mounts").read_text().splitlines():
        _, folder, kind, options, *_ = line.split()
        is_plain = kind == "cgroup" and {"memory", "pids"} & set(options.split(","))
        if (version == 2 and kind == "cgroup2") or (version == 1 and is_plain):
            found.append(Path(folder))
    return found


def pods_problem() -> str:
    """Why pods cannot be made here; "": they can."""
    if os.getuid() != 0:
        return "only root can make cgroups with the names of pods"
    if not usable_versions():
        return "no cgroup can be created on this machine"
    command = ["unshare", "--mount", "--pid", "--fork", "--mount-proc", "true"]
    if subprocess.run(command, capture_output=True, check=False).returncode:
        return "namespaces cannot be created on this machine"
    return ""


def usable_versions() -> list[int]:
    """Versions of cgroups in which this process may create some."""
    found = []
    for version in (2, 1):
        probe = f"gpushare-{secrets.token_hex(4)}"
        with contextlib.suppress(OSError):
            for folder in hierarchies(version):
                (folder / probe).mkdir()
                (folder / probe).rmdir()
            if hierarchies(version):
                found.append(version)
    return found


as_node_root = pytest.mark.skipif(bool(pods_problem()), reason=pods_problem() or "possible")


@contextlib.contextmanager
def public_folder() -> Iterator[Path]:
    """A folder that users of pods can reach, with a part for the socket and one for each pod."""
    with tempfile.TemporaryDirectory(prefix="gpushare-pods-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        for part in ("run", "home"):
            (folder / part).mkdir()
        yield folder


class FakePod:
    """One pod with one container. `root`: its processes run as root of the container."""

    def __init__(self, node_dir: Path, *, root: bool = False, version: int | None = None) -> None:
        version = version or usable_versions()[0]
        self.uid, self.root = str(uuid.uuid4()), root
        parent = f"gpushare-{secrets.token_hex(4)}/kubepods/besteffort"
        container = f"{parent}/pod{self.uid}/{secrets.token_hex(32)}"
        self.cgroups = [folder / container for folder in hierarchies(version)]
        self._socket_dir, self.home = node_dir / "run", node_dir / "home"

    @property
    def owner(self) -> KubernetesPod:
        return KubernetesPod(self.uid)

    def __enter__(self) -> FakePod:
        for folder in self.cgroups:
            folder.mkdir(parents=True)
        ours, theirs = socket.socketpair()
        command = self.in_cgroup("unshare", "--mount", "--propagation", "private", "--pid")
        command += ["--fork", "--kill-child", "--mount-proc", "sh", "-c", MOUNTS]
        command += [str(self._socket_dir), str(self.home), *self._confined()]
        command += [sys.executable, "-m", "tests.agent.pod_process", str(theirs.fileno())]
        self._process = subprocess.Popen(
            [*command, self.user],
            cwd=ROOT,
            env=os.environ | {"PYTHONPATH": str(ROOT)},
            pass_fds=[theirs.fileno()],
        )
        theirs.close()
        self._channel, self._answers = ours, ours.makefile("rb")
        hello = self._answer()
        assert (hello["pid"], hello["uid"]) == (1, int(self.user)), hello
        (self.main,) = psutil.Process(self._process.pid).children()
        return self

    def __exit__(self, *_: object) -> None:
        self._answers.close()
        self._channel.close()
        with contextlib.suppress(psutil.NoSuchProcess):
            self.main.kill()  # the first of its namespace: nothing in there survives it
        self._process.kill()
        self._process.wait()
        for folder in self.cgroups:
            for part in [folder, *folder.parents][:LEVELS]:
                _remove(part)

    @property
    def user(self) -> str:
        return "0" if self.root else str(USER)

    def in_cgroup(self, *command: str) -> list[str]:
        return ["sh", "-c", ENTER, " ".join(str(folder) for folder in self.cgroups), *command]

    def _confined(self) -> list[str]:
        kept = "".join(f",+{name}" for name in CONTAINER_CAPABILITIES.split(","))
        return ["setpriv", "--bounding-set", f"-all{kept}", "--inh-caps", "-all", "--"]

    def command(self) -> list[str]:
        """The prefix of a command that runs in the container."""
        enter = ["nsenter", "--target", str(self.main.pid), "--pid", "--mount"]
        return [*self.in_cgroup(*enter), *self._confined()]

    def place(self, path: Path, text: str) -> Path:
        """Write a file that only this pod has, for its user."""
        there = Path(f"/proc/{self.main.pid}/root{path}")
        there.write_text(text)
        os.chown(there, int(self.user), int(self.user))
        there.chmod(0o600)
        return path

    # ---- what its process does

    def connect(self, path: Path) -> socket.socket:
        """A connection that the other side sees as this pod's."""
        self._command({"connect": str(path)})
        _, (fd,), _, _ = socket.recv_fds(self._channel, 1, 1)
        return socket.socket(fileno=fd)

    def run(self, code: str) -> dict[str, Any]:
        """The `result` of code, or its error."""
        self._command({"run": code})
        return self._answer()

    def _command(self, body: dict[str, str]) -> None:
        self._channel.sendall(json.dumps(body).encode() + b"\n")

    def _answer(self) -> dict[str, Any]:
        line = self._answers.readline()
        assert line, "the pod's process has ended"
        return json.loads(line)


def _remove(folder: Path) -> None:
    """A cgroup is in use until its last process is reaped."""
    deadline = time.monotonic() + 10
    while folder.exists():
        try:
            folder.rmdir()
        except OSError:
            assert time.monotonic() < deadline, f"{folder} is still in use"
            time.sleep(0.01)


class PodServer(FakeServer):
    """A Jupyter server in a pod. All of them choose the same name."""

    def __init__(self, world: PodNode, pod: FakePod) -> None:
        super().__init__(world, "server")
        self.pod, self.wrap = pod, pod.command()

    def open_socket(self) -> socket.socket:
        return self.pod.connect(self.world.config.socket_path())

    def kernel_user(self) -> list[str]:
        return [self.pod.user]

    def prefix(self, registered: Registered) -> list[str]:
        """Only the kernel has its variables: what enters the container is no process of it. The
        token is in a file of the pod, as with our server.
        """
        path = self.pod.place(
            self.pod.home / registered.env["GPUSHARE_KERNEL_ID"], registered.token
        )
        env = registered.env | {"GPUSHARE_TOKEN_FILE": str(path)}
        return [*self.wrap, "env", *(f"{name}={value}" for name, value in env.items())]

    def visible(self, registered: Registered) -> dict[str, str]:
        return {}

    def reported_pid(self, process: asyncio.subprocess.Process) -> int:
        """As in the container, once it has its user. `nsenter` waits for its only child."""
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline:
            for child in psutil.Process(process.pid).children():
                if child.uids().real == int(self.pod.user):
                    return int(_status(child.pid, "NSpid").split()[-1])
            time.sleep(0.005)
        raise AssertionError("the kernel did not start")


def _status(pid: int, name: str) -> str:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return line.partition(":")[2]
    raise AssertionError(f"no {name}")


class PodNode(World):
    """A node with an agent for pods, and the servers of two: hers runs as the usual user, in his he
    is root.
    """

    def __init__(self, **config: Any) -> None:
        self._stack = contextlib.ExitStack()
        self.folder = self._stack.enter_context(public_folder())
        config = {"gpus": 1, "users": "pods"} | config
        super().__init__(socket=self.folder / "run/agent.sock", **config)

    async def __aenter__(self) -> PodNode:
        await self.start_agent()
        self.hers = await self.add_server()
        self.his = await self.add_server(root=True)
        return self

    async def add_server(self, **options: Any) -> PodServer:
        """A new pod with a server."""
        pod = self._stack.enter_context(FakePod(self.folder, **options))
        server = PodServer(self, pod)
        await server.connect()
        return server

    async def __aexit__(self, *_: object) -> None:
        for server in (self.hers, self.his):
            await server.close()
        await self.agent.stop()
        self._stack.close()
        shutil.rmtree(self.state_dir, ignore_errors=True)

    @contextlib.asynccontextmanager
    async def restarted(self) -> Iterator[None]:
        """The agent is away in between."""
        await self.agent.stop()
        yield
        await self.start_agent()
        for server in (self.hers, self.his):
            await server.connect()
