"""The services in a thread of this process, with an event loop of their own: the tools' loops end
between two hooks of the provisioner, or start anew.
"""

from __future__ import annotations

import asyncio
import atexit
import logging
import os
import threading
from collections.abc import Coroutine, Mapping
from concurrent.futures import Future
from pathlib import Path
from typing import Any, Final, TypeVar

from jupyter_gpushare.addresses import agent_socket, scheduler_note
from jupyter_gpushare.aio import BackgroundTasks
from jupyter_gpushare.core.model.errors import GpuShareError, Unavailable

from ..clients.agent_client import AgentClient
from ..clients.local_user import local_user
from ..clients.scheduler_transport import remote_scheduler
from ..requests.presets import DEFAULT_PRESETS, presets_or_default
from ..services.service import GpuShareService
from ..services.status import ServiceSettings
from .kernels import ToolKernels

__all__ = ["ToolSession", "tool_session"]

T = TypeVar("T")
ANSWER_S: Final = 5.0
"""Longest wait for the first answers of scheduler and agent."""
STOP_S: Final = 2.0
log = logging.getLogger("gpushare")


class ToolSession:
    """One per process. The methods are called in other threads."""

    def __init__(self, url: str, token_file: str, ca_file: str, socket: Path) -> None:
        self.pid = os.getpid()
        self.kernels = ToolKernels()
        self._address = (url, token_file, ca_file, socket)
        self._loop = asyncio.new_event_loop()
        self._tasks: BackgroundTasks | None = None
        self._service: GpuShareService | None = None
        self._thread = threading.Thread(target=self._run, name="gpushare", daemon=True)

    @property
    def service(self) -> GpuShareService:
        """The services; only to be used in the session's loop."""
        assert self._service is not None
        return self._service

    def start(self) -> None:
        """Connect.

        Raises:
            GpuShareError: scheduler or agent do not answer.
        """
        self._thread.start()
        try:
            self.submit(self._connect()).result()
        except BaseException:
            self.close()
            raise
        atexit.register(self.close)

    def submit(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Run a coroutine in the session's loop."""
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def call(self, function: Any, *args: object) -> None:
        """Call a function in the session's loop, in the order of the calls."""
        self._loop.call_soon_threadsafe(function, *args)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()

    async def _connect(self) -> None:
        url, token_file, ca_file, socket = self._address
        hub_token = os.environ.get("JUPYTERHUB_API_TOKEN", "")
        scheduler = remote_scheduler(url, token_file, hub_token, ca_file)
        try:
            async with asyncio.timeout(ANSWER_S):
                await scheduler.status()
        except TimeoutError:
            raise Unavailable(f"the scheduler at {url} does not answer") from None
        agent = AgentClient(str(socket), log)
        settings = ServiceSettings(
            mode="embedded", user=local_user(), presets=presets_or_default(DEFAULT_PRESETS)
        )
        self._service = GpuShareService(self.kernels, scheduler, agent, settings, log)
        self._service.ends_kernels_with_process()
        self._service.startup.finished.set()
        self._service.start()
        try:
            async with asyncio.timeout(ANSWER_S):
                await agent.connected.wait()
        except TimeoutError:
            why = agent.refusal or f"the node agent at {socket} does not answer"
            raise Unavailable(why) from None

    def close(self) -> None:
        """End the requests that are left, and the thread."""
        if not self._thread.is_alive() or self.pid != os.getpid():
            return
        if self._service is not None:
            try:
                self.submit(self._service.stop(STOP_S)).result(2 * STOP_S)
            except (TimeoutError, GpuShareError):
                log.debug("the services did not stop in time")
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(STOP_S)


_current: ToolSession | None = None
_starting = threading.Lock()


def tool_session(environ: Mapping[str, str] = os.environ) -> ToolSession:
    """The session of this process, connected on first use.

    Raises:
        GpuShareError: there is no scheduler or agent, or they do not answer.
    """
    global _current
    with _starting:
        if _current is None or _current.pid != os.getpid():
            session = ToolSession(*_find(environ))
            session.start()
            _current = session
        return _current


def _find(environ: Mapping[str, str]) -> tuple[str, str, str, Path]:
    """URL, token file and CA file of the scheduler, and the agent's socket."""
    url, folder = environ.get("GPUSHARE_SCHEDULER", ""), None
    token_file = environ.get("GPUSHARE_TOKEN_FILE", "")
    if not url:
        note = scheduler_note(environ)
        if note is None:
            raise Unavailable("no scheduler is known on this machine; set GPUSHARE_SCHEDULER")
        url, token_file, folder = note.url, token_file or note.token_file, note.folder
    socket = agent_socket(folder, environ)
    if socket is None:
        raise Unavailable("no node agent runs on this machine")
    return url, token_file, environ.get("GPUSHARE_CA_FILE", ""), socket
