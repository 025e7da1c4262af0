"""The event loop: forwards every message unchanged, and gives those to the gate that it decides."""

from __future__ import annotations

import contextlib
import math
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any, Final

import zmq

from . import subshells
from .agent_link import ProxyAgentLink
from .channels import REQUEST_CHANNELS, KernelChannels
from .gate import ProxiedCellGate
from .held_cell import ProxiedCellOutput
from .messages import Frames, Signer, read_reply, read_request
from .server_link import ServerLink
from .visible_gpus import VisibleGpus

__all__ = ["KernelProxy"]

BURST: Final = 64
"""Messages of one socket that are forwarded before the others have their turn."""
CONTROL_REQUESTS: Final = ("interrupt_request", "shutdown_request", *subshells.REQUESTS)
ORPHAN_GRACE_MS: Final = 2_000
"""How long a kernel may take to end itself after its server has ended."""
DROPPED: Final = "gpushare: messages with a wrong signature are not forwarded to the kernel\n"


class KernelProxy:
    """One per launch of a kernel."""

    def __init__(
        self,
        channels: KernelChannels,
        signer: Signer,
        link: ProxyAgentLink,
        server: ServerLink,
        *,
        launched_with: str | None,
        wants_gpu: bool,
        agent_wait_s: float,
        gone_after_s: float,
    ) -> None:
        """`launched_with`: `CUDA_VISIBLE_DEVICES` of the kernel; None: it sees all GPUs.
        `gone_after_s`: how long the proxy waits for the provisioner after the end of the kernel:
        Jupyter calls no hook when it gives up restarting a kernel.
        """
        self._channels, self._signer, self._link, self._server = channels, signer, link, server
        self._subshells = subshells.Subshells()
        output = ProxiedCellOutput(channels, signer)
        self._gate = ProxiedCellGate(
            link,
            output,
            self._to_shell,
            VisibleGpus(launched_with),
            self._subshells,
            lambda visible: server.send({"ask": "relaunch", "visible": visible}),
            wants_gpu=wants_gpu,
            agent_wait_s=agent_wait_s,
        )
        self._kernel_pid: int | None = None
        self._gone_after_s, self._gone_at = gone_after_s, math.inf
        self._stopping = self._has_dropped = False
        self.is_orphan = False
        """The server has ended without stopping the proxy."""
        self._next_tick = 0.0
        self._poller = zmq.Poller()
        self._handlers: dict[Any, Callable[[], None]] = {}
        self._register_handlers()

    def run(self) -> None:
        """Forward until the provisioner stops the proxy, or has ended."""
        self._link.start()
        try:
            while not self._stopping:
                self._turn()
        finally:
            self._gate.shut_down()
            self._link.stop()
            self._channels.close()

    def _turn(self) -> None:
        for ready, _ in self._poller.poll(self._timeout_ms()):
            self._handlers[ready]()
        if time.monotonic() >= self._next_tick:
            self._gate.tick()
            self._next_tick = time.monotonic() + self._gate.next_tick_s()
        if time.monotonic() >= self._gone_at + self._gone_after_s:
            self._stopping = True

    def _timeout_ms(self) -> int | None:
        # a cell may have begun to wait since the last tick
        tick_s = self._gate.next_tick_s()
        self._next_tick = min(self._next_tick, time.monotonic() + tick_s)
        until = min(self._next_tick, self._gone_at + self._gone_after_s)
        if until == math.inf:
            return None
        return max(0, math.ceil((until - time.monotonic()) * 1000))

    # ---- what is ready

    def _register_handlers(self) -> None:
        channels = self._channels
        from_clients = {
            "shell": self._client_shell,
            "control": self._client_control,
            "stdin": self._client_stdin,
        }
        from_kernel = {"shell": self._kernel_shell, "control": self._kernel_control}
        for channel in REQUEST_CHANNELS:
            self._add(channels.front[channel], from_clients[channel])
            self._add(channels.back[channel], from_kernel.get(channel, self._kernel_stdin))
        self._add(channels.back["iopub"], self._kernel_iopub)
        self._add(channels.front["iopub"], self._client_iopub)
        self._add(self._link.fileno, self._agent)
        self._add(self._server.fileno, self._commands)

    def _add(self, source: Any, handler: Callable[[], None]) -> None:
        self._poller.register(source, zmq.POLLIN)
        self._handlers[source] = handler

    def _signed(self, channel: str) -> Iterator[list[zmq.Frame]]:
        """Messages of clients. Others could fill the memory of this process while the kernel is
        busy, so they are dropped here and not by the kernel.
        """
        for frames in _received(self._channels.front[channel]):
            if self._signer.is_valid(frames):
                yield frames
            elif not self._has_dropped:
                self._has_dropped = True
                sys.stderr.write(DROPPED)

    def _client_shell(self) -> None:
        for frames in self._signed("shell"):
            request = read_request(frames, "execute_request")
            # a kernel does not answer one without code
            if request is not None and isinstance(request.content.get("code"), str):
                self._gate.add(request, frames)
            else:
                self._to_shell(frames)

    def _to_shell(self, frames: Frames) -> None:
        self._channels.to_kernel("shell", frames)

    def _client_control(self) -> None:
        for frames in self._signed("control"):
            request = read_request(frames, *CONTROL_REQUESTS)
            if request is not None and request.msg_type == "shutdown_request":
                self._gate.shut_down()
            elif request is not None and request.msg_type in subshells.REQUESTS:
                self._subshells.requested(request)
            elif request is not None and self._gate.interrupt():
                reply = self._signer.message(
                    request.idents, "interrupt_reply", {"status": "ok"}, request.raw_header
                )
                self._channels.to_clients("control", reply)
                continue
            self._channels.to_kernel("control", frames)

    def _client_stdin(self) -> None:
        for frames in self._signed("stdin"):
            self._channels.to_kernel("stdin", frames)

    def _kernel_shell(self) -> None:
        for frames in _received(self._channels.back["shell"]):
            reply = read_reply(frames, "execute_reply")
            if reply is not None and not self._signer.is_valid(frames):
                continue  # another process has bound the kernel's port
            if reply is None or self._gate.on_reply(reply):
                self._channels.to_clients("shell", frames)

    def _kernel_control(self) -> None:
        for frames in _received(self._channels.back["control"]):
            reply = read_reply(frames, *subshells.REPLIES)
            if reply is not None and self._signer.is_valid(frames):
                for ended in self._subshells.replied(reply):
                    self._gate.subshell_ended(ended)
            self._channels.to_clients("control", frames)

    def _kernel_stdin(self) -> None:
        _pipe(self._channels.back["stdin"], self._channels.front["stdin"])

    def _kernel_iopub(self) -> None:
        _pipe(self._channels.back["iopub"], self._channels.front["iopub"])

    def _client_iopub(self) -> None:
        """Subscriptions."""
        _pipe(self._channels.front["iopub"], self._channels.back["iopub"])

    def _agent(self) -> None:
        for message in self._link.receive():
            self._gate.on_agent(message)

    # ---- commands of the provisioner

    def _commands(self) -> None:
        for command in self._server.receive():
            if command["do"] == "interrupt":
                self._server.send({"answer": "interrupt", "held": self._gate.interrupt()})
            elif command["do"] == "kernel":
                self._follow_kernel(command["pid"])
            elif command["do"] == "relaunched":
                self._follow_kernel(command["pid"])
                self._channels.reconnect()
                self._gate.relaunched(command["visible"])
            elif command["do"] == "stop":
                self._stopping = True
        if not self._server.is_open:
            self._end_orphan()

    def _follow_kernel(self, pid: int) -> None:
        self._kernel_pid, self._gone_at = pid, math.inf
        try:
            fd = os.pidfd_open(pid)
        except OSError:
            self._gone_at = time.monotonic()
            return

        def ended() -> None:
            self._poller.unregister(fd)
            del self._handlers[fd]
            os.close(fd)
            if self._kernel_pid == pid:
                self._gone_at = time.monotonic()

        self._add(fd, ended)

    def _end_orphan(self) -> None:
        """The server has ended without a word. Kernels that do not notice it are ended."""
        self._stopping = self.is_orphan = True
        if self._kernel_pid is None:
            return
        with contextlib.suppress(OSError):
            fd = os.pidfd_open(self._kernel_pid)
            poller = zmq.Poller()
            poller.register(fd, zmq.POLLIN)
            if not poller.poll(ORPHAN_GRACE_MS):
                os.killpg(os.getpgid(self._kernel_pid), signal.SIGKILL)


def _received(source: zmq.Socket[bytes]) -> Iterator[list[zmq.Frame]]:
    """Messages that have arrived, so many that the other sockets do not wait long."""
    with contextlib.suppress(zmq.Again):
        for _ in range(BURST):
            yield source.recv_multipart(zmq.NOBLOCK, copy=False)


def _pipe(source: zmq.Socket[bytes], target: zmq.Socket[bytes]) -> None:
    for frames in _received(source):
        target.send_multipart(frames, copy=False)
