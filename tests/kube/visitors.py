"""Users of a JupyterHub who keep notebooks with a share open, whatever ends their servers."""

from __future__ import annotations

import contextlib
import sys
import threading
from dataclasses import dataclass
from typing import Any, Final

import httpx
import websocket

from node_agent.system.processes import ProcessId, process_at
from tests.kube.api import Refused
from tests.kube.lab import Lab
from tests.story.front_end import RestError, eventually
from tests.story.hub_process import Person

__all__ = ["NETWORK", "OpenKernel", "Visitor"]

NETWORK: Final = (
    httpx.HTTPError,
    Refused,
    OSError,
    RestError,
    StopIteration,
    KeyError,
    websocket.WebSocketException,
)
"""What a part that was just killed answers."""
NOTEBOOKS: Final = 2


@dataclass(frozen=True)
class OpenKernel:
    """It has half a GPU, and has to live until its pod is killed."""

    kernel_id: str
    pod: str
    """The pod's uid."""
    process: ProcessId


class Visitor(threading.Thread):
    """Keeps two notebooks with half a GPU each. After a kill, the server is stopped and started
    again in the Hub, and the notebooks are opened again.
    """

    def __init__(self, lab: Lab, name: str) -> None:
        super().__init__(daemon=True)
        self.name, self.lab, self.over = name, lab, threading.Event()
        self.kernels: dict[str, OpenKernel] = {}
        self.pods: dict[str, str] = {}
        """Of all kernels so far."""
        self.killed: set[str] = set()
        """Uids of pods that a test has killed."""
        self.opened = 0
        self.problem = ""

    def run(self) -> None:
        while not self.over.wait(0.2):
            try:
                self.attend()
            except (*NETWORK, AssertionError) as error:  # again, as a person would
                self.problem = repr(error)
                sys.stdout.write(f"{self.name}: {self.problem[:1000]}\n")  # shown on failure

    def stop(self) -> None:
        self.over.set()
        self.join(180)

    @property
    def is_settled(self) -> bool:
        """Whether all notebooks are open in a server that no test has killed."""
        kernels = list(self.kernels.values())
        return len(kernels) == NOTEBOOKS and not any(one.pod in self.killed for one in kernels)

    def attend(self) -> None:
        """Opens what is not open."""
        if self.is_settled:
            return
        self.kernels = {}
        person, pod = self._server()
        for number in range(NOTEBOOKS):
            self._open(person, pod, f"{self.name}-{number}.ipynb")

    def _server(self) -> tuple[Person, str]:
        """A server that runs, and the uid of its pod."""
        hub = self.lab.hub
        pod, person = hub.pod(self.name), hub.people.get(self.name)
        uid = pod["metadata"]["uid"] if pod is not None else ""
        if person is None or uid in {"", *self.killed} or not hub.is_ready(self.name):
            self._end_server(pod)
            person = hub.person(self.name)
        pod = hub.pod(self.name)
        assert pod is not None, "the server has ended"
        return person, pod["metadata"]["uid"]

    def _end_server(self, pod: dict[str, Any] | None) -> None:
        """Also the pod of a server that the Hub has forgotten, because it was killed meanwhile."""
        with contextlib.suppress(RestError):
            self.lab.hub.stop(self.name)
        if pod is not None:
            self.killed.add(pod["metadata"]["uid"])
            self.lab.api.delete(self.lab.api.path(pod))

    def _open(self, person: Person, pod: str, path: str) -> None:
        """A notebook that is open already is used again."""
        notebook = person.notebook("python3", path)
        try:
            self.pods[notebook.kernel_id] = pod
            share = f"gpushare/api/kernels/{notebook.kernel_id}"
            eventually(lambda: [person.rest("POST", share, {"gpu": 0.5})], "it has a share", 60)
            notebook.until("attached", within=120)
            process = process_at(notebook.pid)
        finally:
            with contextlib.suppress(*NETWORK):
                notebook.ws.close()
        assert process is not None, "the kernel has ended"
        self.opened += 1
        self.kernels[notebook.kernel_id] = OpenKernel(notebook.kernel_id, pod, process)
