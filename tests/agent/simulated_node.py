"""A node for tests: a real agent in this event loop, real child processes as kernels, a real server
line; only the scheduler is a fake.

`FakeScheduler` keeps the plan and hears everything; `FakeServer` launches kernels as a provisioner
would and relaunches them when asked.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import pwd
import shutil
import socket
import sys
import tempfile
from pathlib import Path

import psutil

from jupyter_gpushare.core.model.errors import GpuShareError
from jupyter_gpushare.messages import (
    KernelEvent,
    KernelGone,
    KernelLaunched,
    KernelReported,
    KernelRequestState,
    NodeRules,
    Registered,
    RegisterKernel,
    RelaunchKernel,
    ServerHello,
    ServerWelcome,
    ToServer,
    decode,
    encode,
)
from node_agent.app import Agent, AgentConfig
from node_agent.devices.base.protocols import DiscoveryRequest
from node_agent.devices.simulated.simulation import Simulation
from node_agent.devices.simulated.vendor import SimulatedVendor
from tests.agent.fake_scheduler import GIB, FakeScheduler

__all__ = ["GIB", "Child", "FakeScheduler", "FakeServer", "World", "acting_as", "knocking", "play"]

ROOT = Path(__file__).parents[2]


@contextlib.contextmanager
def acting_as(user: pwd.struct_passwd | None):
    """What the operating system is asked meanwhile, it is asked by that user (None: by us)."""
    if user is None:
        yield
        return
    groups = os.getgroups()
    os.setgroups([]), os.setegid(user.pw_gid), os.seteuid(user.pw_uid)
    try:
        yield
    finally:
        os.seteuid(0), os.setegid(0), os.setgroups(groups)


def knocking(path: Path, user: pwd.struct_passwd | None = None) -> socket.socket:
    """A connection that the other side sees as this user's: credentials are those of the moment of
    connecting.
    """
    made = socket.socket(socket.AF_UNIX)
    with acting_as(user):
        made.connect(str(path))
    return made


class Child:
    """One kernel process, and what it said."""

    def __init__(self, process) -> None:
        self.process, self.said, self.pid = process, [], process.pid
        self._new = asyncio.Event()
        self._reader = asyncio.ensure_future(self._read())

    async def _read(self) -> None:
        while line := await self.process.stdout.readline():
            self.said.append(json.loads(line))
            self._new.set()
        self._new.set()

    async def hear(self, key: str, since: int = 0, timeout: float = 60):
        """The first thing with this key after the first `since` ones."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                while not self._reader.done():
                    for body in self.said[since:]:
                        if key in body or ("error" in body and key == "done"):
                            return body
                    self._new.clear()
                    await self._new.wait()
        raise AssertionError(
            f"the kernel never said {key}; it said {self.said[since:]}; before: {self.said[:since]}"
        )

    def start(self, code: str) -> int:
        mark = len(self.said)
        self.process.stdin.write(json.dumps({"cell": code}).encode() + b"\n")
        return mark

    def send(self, **command) -> int:
        """How much it has said before."""
        self.process.stdin.write(json.dumps(command).encode() + b"\n")
        return len(self.said)

    async def run(self, code: str, timeout: float = 60):
        return await self.hear("done", self.start(code), timeout)

    async def ask(self, action: str):
        mark = len(self.said)
        self.process.stdin.write(json.dumps({"ask": action}).encode() + b"\n")
        return (await self.hear("reply", mark))["reply"]

    async def end(self) -> None:
        if self.process.returncode is None:
            with contextlib.suppress(psutil.NoSuchProcess, ProcessLookupError):
                for inner in psutil.Process(self.pid).children():  # where a command wraps it
                    inner.kill()
                self.process.kill()
        await self.process.wait()
        await self._reader
        self.process._transport.close()


class FakeServer:
    """A Jupyter server: registers, launches, relaunches. `deaf`: ignores the request to relaunch.
    `user`: whose it is, when not ours.
    """

    def __init__(
        self, world: World, name: str = "server-1", user: pwd.struct_passwd | None = None
    ) -> None:
        self.world, self.name, self.deaf, self.user = world, name, False, user
        self.wrap: list[str] = []
        """What stands before the command of a kernel; with it, the server counts processes as in a
        container: its kernel has number 1.
        """
        self.environ: dict[str, str] = {}
        self.kernels: dict[str, Child] = {}
        self.reported, self.events, self.answers, self.relaunches = {}, [], asyncio.Queue(), []
        self._n = 0
        self.writer = None
        self._replies: dict[int, asyncio.Future] = {}
        self._tasks: set[asyncio.Task] = set()

    async def connect(self) -> ServerWelcome:
        if self.writer is not None:
            await self.disconnect()
        sock = self.open_socket()
        self.reader, self.writer = await asyncio.open_unix_connection(sock=sock, limit=1 << 24)
        self.send(ServerHello(server=self.name, pid=os.getpid()))
        welcome = decode(ToServer, await self.reader.readline())
        self._task = asyncio.ensure_future(self._read())
        return welcome

    def open_socket(self) -> socket.socket:
        return knocking(self.world.config.socket_path(), self.user)

    def kernel_user(self) -> list[str]:
        return [self.user.pw_name] if self.user else []

    def prefix(self, registered: Registered) -> list[str]:
        """What stands before the command of a kernel."""
        return self.wrap

    def visible(self, registered: Registered) -> dict[str, str]:
        """Environment of that command."""
        return registered.env

    def reported_pid(self, process: asyncio.subprocess.Process) -> int:
        """Of a kernel, as this server counts processes."""
        return 1 if self.wrap else process.pid

    def send(self, body) -> None:
        self.writer.write(encode(body) + b"\n")

    async def _read(self) -> None:
        while line := await self.reader.readline():
            match decode(ToServer, line):
                case Registered(n=n) as body:
                    self._replies.pop(n).set_result(body)
                case KernelReported(kernel=kernel):
                    self.reported[kernel.kernel_id] = kernel
                case KernelEvent(kernel_id=kernel_id, event=event):
                    self.events.append((kernel_id, event.kind, event.message))
                case RelaunchKernel(kernel_id=kernel_id) as body:
                    self.relaunches.append(body)
                    if not self.deaf:
                        self.spawn(self.relaunch(kernel_id))
                case other:
                    self.answers.put_nowait(other)

    def spawn(self, work) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def register(self, kernel_id: str, *, wants_gpu: bool = False, **more) -> Registered:
        self._n += 1
        self._replies[self._n] = asyncio.get_running_loop().create_future()
        reply = self._replies[self._n]
        request = KernelRequestState(kernel_id=kernel_id, pending=True) if wants_gpu else None
        name = f"{kernel_id}.ipynb"
        self.send(
            RegisterKernel(n=self._n, kernel_id=kernel_id, name=name, request=request, **more)
        )
        return await asyncio.wait_for(reply, 60)

    async def launch(self, kernel_id: str, *, wants_gpu: bool = True, **more) -> Child:
        registered = await self.register(kernel_id, wants_gpu=wants_gpu, **more)
        process = await asyncio.create_subprocess_exec(
            *self.prefix(registered),
            sys.executable,
            "-m",
            "tests.agent.kernel_process",
            *self.kernel_user(),
            stdin=-1,
            stdout=-1,
            cwd=ROOT,
            env=os.environ | self.visible(registered) | {"PYTHONPATH": str(ROOT)} | self.environ,
            limit=1 << 22,
        )
        child = self.kernels[kernel_id] = Child(process)
        self.send(KernelLaunched(kernel_id=kernel_id, pid=self.reported_pid(process)))
        await child.hear("hello")
        return child

    async def relaunch(self, kernel_id: str) -> None:
        self.send(KernelGone(kernel_id=kernel_id, restarting=True))
        await self.kernels[kernel_id].end()
        await self.launch(kernel_id)

    def report_request(self, kernel_id: str, pending: bool, **more) -> None:
        self.send(KernelRequestState(kernel_id=kernel_id, pending=pending, **more))

    def kinds(self, kernel_id: str) -> list[str]:
        return [kind for name, kind, _ in self.events if name == kernel_id]

    async def close(self) -> None:
        for child in self.kernels.values():
            await child.end()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.disconnect()

    async def disconnect(self) -> None:
        self.writer.close()
        with contextlib.suppress(OSError):
            await self.writer.wait_closed()
        await asyncio.gather(self._task, return_exceptions=True)


class World:
    """A node of `gpus` x 80 GiB; copies take no time unless asked."""

    def __init__(
        self,
        *,
        gpus: int = 2,
        per_gpu: int | None = 4,
        notice_ms: int = 400,
        copy_gib_s: float = 0,
        **config,
    ) -> None:
        self.state_dir = Path(tempfile.mkdtemp(prefix="gpushare-test-"))
        # Short notices keep the tests short; their lower bound has a test of its own.
        self.config = AgentConfig("n0", self.state_dir, min_notice_ms=0, **config)
        self.simulation = Simulation("A100", gpus, 80 * GIB, copy_gib_s)
        self.scheduler = FakeScheduler(NodeRules(workloads_per_gpu=per_gpu, notice_ms=notice_ms))

    async def __aenter__(self) -> World:
        await self.start_agent()
        self.server = FakeServer(self)
        await self.server.connect()
        return self

    async def __aexit__(self, *_) -> None:
        await self.server.close()
        await self.agent.stop()
        shutil.rmtree(self.state_dir, ignore_errors=True)

    async def start_agent(self) -> None:
        self.devices = self.make_devices()
        self.agent = Agent(self.config, self.devices, self.scheduler.link)
        await self.agent.start()

    def make_devices(self):
        public = self.config.public_dir() if self.config.tenancy.is_shared else None
        return SimulatedVendor().find(
            DiscoveryRequest(
                "n0",
                self.state_dir,
                public,
                f"{self.simulation.model}:{self.simulation.count}",
                copy_gib_s=self.simulation.copy_gib_s,
            )
        )

    def fault(self, name: str, argument: str = "*", *, on: bool = True) -> None:
        self.devices._node.fault(name, argument, on=on)

    def record(self, kernel_id: str):
        return self.agent.node.kernels[kernel_id]

    async def until(self, done, what: str = "", timeout: float = 60):
        """Wait for a fact; says what was the case when it never came."""
        try:
            async with asyncio.timeout(timeout):
                while True:
                    with contextlib.suppress(KeyError, AttributeError, GpuShareError):
                        if found := done():
                            return found
                    await asyncio.sleep(0.01)
        except TimeoutError:
            raise AssertionError(f"never came: {what}; books: {self.books()}") from None

    def books(self) -> object:
        """What a failed test shows."""
        return self.agent.node.kernels

    def used(self) -> dict[int, int]:
        """MiB per GPU as the driver sees it."""
        reading = self.devices._node.read_all()
        return {gpu.index: reading.used[gpu.uuid] >> 20 for gpu in self.devices._gpus}

    async def attached(self, kernel_id: str):
        await self.until(
            lambda: self.record(kernel_id).assignment.attached, f"{kernel_id} attached"
        )


def play(story) -> None:
    """Run an async test; one that hangs says where."""

    async def bounded() -> None:
        task = asyncio.ensure_future(story)
        done, _ = await asyncio.wait({task}, timeout=200)
        if not done:
            for one in asyncio.all_tasks():
                one.print_stack()
            task.cancel()
        await task

    asyncio.run(bounded())
