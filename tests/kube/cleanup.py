"""Removes what a node of the tests leaves on the machine: processes, mounts, cgroups, a bridge.

    python -m tests.kube.cleanup ID FOLDER

waits for the end of its standard input, which is the end of the tests however they end.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

__all__ = ["CGROUPS", "Leftovers"]

HIERARCHY: Final = Path("/sys/fs/cgroup")
CGROUPS: Final = (
    (HIERARCHY,)
    if (HIERARCHY / "cgroup.controllers").exists()
    else tuple(sorted(path for path in HIERARCHY.glob("*") if path.is_dir()))
)
"""The root of every hierarchy: one with cgroup v2, one per controller with v1."""
KEPT: Final = {".log", ".json", ".toml"}
LINKS: Final = Path("/var/log/containers")
NETWORK_RESULTS: Final = Path("/var/lib/cni/results")


class Leftovers:
    """What a node with this id and folder left."""

    def __init__(self, node_id: str, folder: Path) -> None:
        self.id, self.folder = node_id, folder

    def remove(self) -> None:
        self._kill()
        self._unmount()
        self._remove_cgroups()
        subprocess.run(["ip", "link", "delete", self.id], check=False, capture_output=True)
        self._remove_files()

    def _kill(self) -> None:
        """The programs, then their containers, until none is left."""
        for file in self.folder.glob("*.pid"):
            _kill(int(file.read_text()))
            file.unlink()
        deadline = time.monotonic() + 30
        while (pids := set(self._processes())) and time.monotonic() < deadline:
            for pid in pids:
                _kill(pid)
            time.sleep(0.1)

    def _processes(self) -> Iterator[int]:
        """Those of the node's cgroups, and containerd's shims."""
        for top in CGROUPS:
            for file in (top / self.id).rglob("cgroup.procs"):
                with contextlib.suppress(OSError):
                    yield from map(int, file.read_text().split())
        socket = f"{self.folder}/containerd.sock".encode()
        for folder in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                words = (folder / "cmdline").read_bytes().split(b"\0")
                if words[0].endswith(b"containerd-shim-runc-v2") and socket in words:
                    yield int(folder.name)

    def _unmount(self) -> None:
        with Path("/proc/self/mountinfo").open() as lines:
            points = [line.split()[4].encode().decode("unicode_escape") for line in lines]
        for point in sorted(points, reverse=True):  # the inner ones first
            if point.startswith(f"{self.folder}/"):
                subprocess.run(["umount", "-l", point], check=False, capture_output=True)

    def _remove_cgroups(self) -> None:
        for top in CGROUPS:
            found = sorted((top / self.id).rglob("*/"), reverse=True)
            for folder in (*found, top / self.id):
                with contextlib.suppress(OSError):
                    folder.rmdir()

    def _remove_files(self) -> None:
        """Keeps logs and configuration: they explain the failure of a test."""
        for path in self.folder.glob("*"):
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path, ignore_errors=True)
            elif path.suffix not in KEPT:
                path.unlink(missing_ok=True)
        for path in NETWORK_RESULTS.glob(f"{self.id}-*"):
            path.unlink(missing_ok=True)
        for link in LINKS.glob("*"):
            if link.is_symlink() and os.readlink(link).startswith(f"{self.folder}/"):
                link.unlink()


def _kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    sys.stdin.buffer.read()
    Leftovers(sys.argv[1], Path(sys.argv[2])).remove()
