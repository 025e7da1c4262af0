"""The commands of the Compose file, with its environment and configuration, run against each other:
PostgreSQL, scheduler, agents and JupyterHub as processes, their addresses and folders replaced.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
import yaml

from tests.distribution.builds import ROOT
from tests.scheduler.databases import running_cluster
from tests.story.front_end import Rest, eventually
from tests.story.hub_process import PROXY, Person
from tests.story.jupyter_process import processes_of
from tests.workers import free_port

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

COMPOSE = ROOT / "docs/examples/compose"
DOCKERFILE = (ROOT / "docs/examples/images/Dockerfile").read_text()
SERVICES = yaml.safe_load((COMPOSE / "compose.yaml").read_text())["services"]
HUB_TOKEN = "0" * 63 + "1"
MORE_CONFIG = """
c.JupyterHub.services.append({"name": "tester", "api_token": "tester-token"})
scopes = ["admin:users", "admin:servers", "tokens", "access:servers"]
c.JupyterHub.load_roles.append({"name": "tester", "scopes": scopes, "services": ["tester"]})
c.Spawner.args = ["--allow-root"]
"""
"""Of the Hub: a token for this test, which may run as root."""


def entrypoint(target: str) -> list[str]:
    """Of an image."""
    stage = re.split(r"(?m)^FROM \S+ AS ", DOCKERFILE)
    (text,) = (one for one in stage if one.startswith(f"{target}\n"))
    return json.loads(re.search(r"(?m)^ENTRYPOINT (.+)$", text)[1])


class Composed:
    """Services of the file as processes."""

    def __init__(self, folder: Path, database: str) -> None:
        self.folder = folder
        self.ports = {name: free_port() for name in ("8470", "8000", "8081", "8001")}
        self.database = database
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        for name in ("tokens", "home", "config"):
            (folder / name).mkdir()
        for file in COMPOSE.iterdir():
            (folder / "config" / file.name).write_text(self.here(file.read_text(), "hub"))
        with (folder / "config/jupyterhub_config.py").open("a") as config:
            config.write(MORE_CONFIG)
            config.write(f"c.ConfigurableHTTPProxy.command = [{str(PROXY)!r}]\n")
            config.write(f"c.ConfigurableHTTPProxy.api_url = '{self.url('8001')}'\n")

    def url(self, port: str) -> str:
        return f"http://127.0.0.1:{self.ports[port]}"

    def here(self, text: str, service: str) -> str:
        """Addresses and folders of a container -> ours. node1 shares a volume with the Hub."""
        run = "hub" if service == "node1" else service
        text = text.replace("postgresql+psycopg://gpushare@db/gpushare", self.database)
        text = re.sub(
            r"http://(?:scheduler|hub|127\.0\.0\.1|0\.0\.0\.0):(\d+)",
            lambda found: self.url(found[1]),
            text,
        )
        for place, ours in (
            ("/run/gpushare", f"{self.folder}/run-{run}"),
            ("/var/lib/gpushare", f"{self.folder}/state-{service}"),
            ("/etc/gpushare", f"{self.folder}/config"),
            ("/home/gpushare", f"{self.folder}/home"),
            ("/tokens", f"{self.folder}/tokens"),
        ):
            text = text.replace(place, ours)
        return text

    def argv(self, name: str) -> list[str]:
        service = SERVICES[name]
        whole = service.get("entrypoint", entrypoint(service["build"]["target"]))
        argv = [self.here(part, name) for part in [*whole, *service.get("command", [])]]
        if name == "scheduler":
            argv += ["--port", str(self.ports["8470"])]
        return argv

    def environment(self, name: str) -> dict[str, str]:
        clean = {
            key: value
            for key, value in os.environ.items()
            if not key.startswith(("JUPYTER", "GPUSHARE", "JPY"))
        }
        given = {key: str(value) for key, value in SERVICES[name].get("environment", {}).items()}
        if "HUB_TOKEN" in given:
            given["HUB_TOKEN"] = HUB_TOKEN
        bin_ = Path(sys.executable).parent
        return (
            clean
            | given
            | {
                "PATH": f"{bin_}{os.pathsep}{os.environ['PATH']}",
                "HOME": str(self.folder / "home"),
                "GPUSHARE_STATE": f"{self.folder}/state-{name}",
                "STORY_WORLD": str(self.folder),
            }
        )

    def start(self, name: str) -> subprocess.Popen[bytes]:
        for place in ("run-hub" if name == "node1" else f"run-{name}", f"state-{name}"):
            (self.folder / place).mkdir(mode=0o700, exist_ok=True)
        with (self.folder / f"{name}.log").open("wb") as log:
            made = subprocess.Popen(
                self.argv(name),
                env=self.environment(name),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.folder,
                start_new_session=True,
            )
        self.processes[name] = made
        return made

    def stop(self) -> None:
        for process in self.processes.values():
            process.terminate()
        for process in self.processes.values():
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(30)
        for left in processes_of(self.folder):
            with contextlib.suppress(psutil.Error):
                left.kill()
        for process in self.processes.values():
            process.wait()

    def logs(self) -> str:
        files = sorted(self.folder.glob("*.log"))
        return "\n".join(f"==== {one.name}\n{one.read_text()[-5000:]}" for one in files)


@pytest.fixture
def composed() -> Iterator[Composed]:
    with (
        running_cluster() as cluster,
        tempfile.TemporaryDirectory(prefix="gs-", ignore_cleanup_errors=True) as folder,
    ):
        if cluster is None:
            pytest.skip("PostgreSQL is not installed")
        with cluster.database() as database:
            made = Composed(Path(folder), database.url)
            try:
                yield made
            finally:
                made.stop()
                sys.stdout.write(made.logs())  # shown when the test fails


def test_all_services_work_together(composed: Composed):
    composed.start("scheduler")
    hub = Rest(composed.ports["8000"], "tester-token", "/hub/api/")
    scheduler = Rest(composed.ports["8470"], "", "/")
    eventually(lambda: scheduler.rest("GET", "healthz", raw=True), "the scheduler is healthy")
    assert composed.start("tokens").wait(60) == 0, composed.logs()
    composed.start("hub")
    eventually(lambda: hub.rest("GET", "users") is not None, "the Hub answers", 120)
    composed.start("node1")
    composed.start("node2")
    hub.rest("POST", "users/ada/server")
    token = hub.rest("POST", "users/ada/tokens", {"expires_in": 3600})["token"]
    ada = Person(composed.ports["8000"], token, "ada")
    eventually(lambda: ada.status()["agent"]["reachable"], "her server reaches its agent", 120)
    eventually(lambda: ada.status()["scheduler"]["reachable"], "and the scheduler", 60)
    notebook = ada.notebook("python3", "a.ipynb")
    shown = notebook.ok("%gpu request 0.5\n%gpu nodes", 60)
    assert {"node1", "node2"} <= set(re.findall(r"node\d", shown))
    notebook.until("attached")
    assert notebook.view["project"] == "vision"
    notebook.ws.close()


def test_every_service_has_a_health_check_and_no_root():
    stages = re.split(r"(?m)^FROM \S+ AS ", DOCKERFILE)[1:]
    images = {stage.split()[0]: stage for stage in stages}
    for name, service in SERVICES.items():
        if "build" in service:
            stage = images[service["build"]["target"]]
            assert ("HEALTHCHECK" in stage, "USER 10001:10001" in stage) == (True, True), name
        else:
            assert "healthcheck" in service, name
    assert {"scheduler", "agent", "demo", "hub"} <= set(images)
