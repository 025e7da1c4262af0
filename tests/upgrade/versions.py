"""Version 0.1.0 beside this one: its packages as its last commit has them, in a folder of their
own, and Jupyter servers, schedulers and agents of either version.
"""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Final

import pytest

from tests.story.jupyter_process import Server

__all__ = ["NEW", "OLD_VERSION", "VersionedServer", "old_tree", "tree_of"]

NEW: Final = Path(__file__).parents[2]
OLD_VERSION: Final = "0.1.0"
LAST_COMMIT: Final = "2c199314159277808498e5a8f0364c16f6ff65ed"
"""The last commit before the changes of 0.2.0."""
PACKAGES: Final = ("jupyter_gpushare", "node_agent", "labextension/package.json")


def _read(target: Path) -> Path:
    """Version 0.1.0; skips the test where the history does not reach back so far."""
    command = ["git", "archive", LAST_COMMIT, *PACKAGES]
    done = subprocess.run(command, cwd=NEW, capture_output=True, timeout=60, check=False)
    if done.returncode:
        pytest.skip(f"version {OLD_VERSION} is not in this copy: {done.stderr.decode().strip()}")
    with tarfile.open(fileobj=io.BytesIO(done.stdout)) as archive:
        archive.extractall(target, filter="data")
    version = json.loads((target / "labextension/package.json").read_text())["version"]
    assert version == OLD_VERSION
    # as its build would have written it
    (target / "jupyter_gpushare/_version.py").write_text(f"__version__ = {version!r}\n")
    return target


@pytest.fixture(scope="session")
def old_tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with version 0.1.0."""
    return _read(tmp_path_factory.mktemp("version") / OLD_VERSION)


class VersionedServer(Server):
    """A Jupyter server with scheduler and agent, each of the version that `trees` names."""

    def __init__(self, folder: Path, tree: Path, **options: int) -> None:
        self.trees = dict.fromkeys(("scheduler", "agent", "jupyter"), tree)
        super().__init__(folder, remote=True, **options)

    def _start(self, name: str, *argv: str) -> None:
        """Python finds the packages of its version first."""
        with (self.folder / f"{name}.log").open("ab") as log:
            self.processes[name] = subprocess.Popen(
                argv,
                env={**self.env, "PYTHONPATH": str(self.trees[name])},
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                cwd=self.folder,
                start_new_session=True,
            )

    def end(self, name: str) -> None:
        """SIGTERM, as systemd ends a service; it ends cleanly."""
        process = self.processes.pop(name)
        process.terminate()
        assert process.wait(60) == 0, self.logs()

    def upgrade(self, name: str, to: Path = NEW) -> None:
        """Another version of one component, in place of the running one."""
        self.end(name)
        self.trees[name] = to
        {
            "scheduler": self.start_scheduler,
            "agent": self.start_agent,
            "jupyter": self.start_jupyter,
        }[name]()

    def command(self, tree: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
        """`jupyter gpushare …` of one version, for this scheduler."""
        address = f"http://127.0.0.1:{self.scheduler_port}"
        return subprocess.run(
            [sys.executable, "-m", "jupyter_gpushare.cli", *arguments],
            env={
                **self.env,
                "PYTHONPATH": str(tree),
                "GPUSHARE_SCHEDULER": address,
                "GPUSHARE_TOKEN_FILE": str(self.state / "admin.token"),
            },
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )


def tree_of(pid: int) -> str:
    """The folder from which a process reads our packages."""
    environment = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    found = next(one for one in environment if one.startswith(b"PYTHONPATH="))
    return os.fsdecode(found.partition(b"=")[2])
