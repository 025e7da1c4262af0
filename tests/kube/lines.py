"""Lines from a pod to others that fall silent or are cut, by routes in the network of the pod."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator, Sequence

from tests.kube.assets import program

__all__ = ["Line"]


class Line:
    """From a pod to some addresses. `pid`: of a process of the pod, on the node; the network
    outlives it. Raises OSError without such a process.
    """

    def __init__(self, pid: int, addresses: Sequence[str]) -> None:
        self._addresses = list(addresses)
        self._network = os.open(f"/proc/{pid}/ns/net", os.O_RDONLY)

    def close(self) -> None:
        os.close(self._network)

    @contextlib.contextmanager
    def silent(self) -> Iterator[None]:
        """What is sent gets lost without an error."""
        self._route("add")
        try:
            yield
        finally:
            self._route("delete")

    def cut(self) -> None:
        """Its connections end at once."""
        for address in self._addresses:
            self._run("ss", "--kill", "--tcp", "dst", address)

    def _route(self, verb: str) -> None:
        for address in self._addresses:
            self._run("ip", "route", verb, "blackhole", f"{address}/32")

    def _run(self, name: str, *arguments: str) -> None:
        """Nothing, once the pod has ended."""
        found = program(name)
        assert found, f"{name} is missing: `make kube-assets`"
        enter = ["nsenter", f"--net=/proc/self/fd/{self._network}", found, *arguments]
        subprocess.run(enter, check=False, capture_output=True, pass_fds=[self._network])
