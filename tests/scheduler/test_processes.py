"""Scheduler, agent and command line as processes, the way an administrator starts them: on a socket
without tokens, over TLS with them.

What they leave behind (logs, process list, answers, notes) is searched for every token that was
used.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import ssl
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from tests.scheduler.running_server import POLICY
from tests.scheduler.test_certificates import Papers

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]
CLI = (sys.executable, "-m", "jupyter_gpushare.cli")


class Box:
    """A machine with its own state; whatever was started here ends with it."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.state = folder, folder / "state"
        self._running: list[subprocess.Popen] = []
        (folder / "gpushare.yaml").write_text(POLICY)

    @property
    def env(self) -> dict[str, str]:
        clean = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("GPUSHARE", "JUPYTER"))
        }
        return clean | {
            "GPUSHARE_STATE": str(self.state),
            "JUPYTER_CONFIG_DIR": str(self.folder),
            "HOME": str(self.folder),
        }

    def start(self, name: str, *arguments: object) -> subprocess.Popen:
        with (self.folder / f"{name}.log").open("ab") as log:
            made = subprocess.Popen(
                [*CLI, *map(str, arguments)], stdout=log, stderr=log, env=self.env, cwd=self.folder
            )
        self._running.append(made)
        return made

    def scheduler(self, *arguments: object) -> str:
        """Gives its address when it listens."""
        made = self.start(
            "scheduler",
            "scheduler",
            "--policy",
            self.folder / "gpushare.yaml",
            "--log-level",
            "debug",
            *arguments,
        )

        def address() -> str:
            assert made.poll() is None, self.logs()
            return self.logs().partition("listening on ")[2].partition(" (policy")[0]

        return str(self.until(address))

    def say(self, *arguments: object) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*CLI, *map(str, arguments)],
            capture_output=True,
            text=True,
            env=self.env,
            timeout=60,
            check=False,
        )

    def ask(self, *arguments: object) -> dict:
        done = self.say(*arguments, "--json")
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def until(self, question: Callable[[], object]) -> object:
        end = time.monotonic() + 60
        while time.monotonic() < end:
            if answer := question():
                return answer
            time.sleep(0.1)
        raise AssertionError(self.logs())

    def logs(self) -> str:
        return "".join(path.read_text() for path in sorted(self.folder.glob("*.log")))

    def commands(self) -> list[str]:
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                if str(self.folder) in " ".join(line := process.cmdline()):
                    found.append(" ".join(line))
        return found

    def close(self) -> None:
        for process in reversed(self._running):
            process.send_signal(signal.SIGTERM)
        for process in self._running:
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


@contextmanager
def box(folder: Path) -> Iterator[Box]:
    made = Box(folder)
    try:
        yield made
    finally:
        made.close()


def nodes(ask: Callable[..., dict], *more: object) -> list[str]:
    return [node["name"] for node in ask("nodes", *more)["nodes"] if node["status"] == "Ready"]


def test_one_box_on_a_socket_needs_no_token(tmp_path: Path):
    with box(tmp_path) as here:
        url = here.scheduler("--socket", tmp_path / "s.sock")
        assert url == f"unix://{tmp_path}/s.sock"
        assert not (here.state / "admin.token").exists()
        here.start(
            "agent",
            "agent",
            "--scheduler",
            url,
            "--simulate",
            "A100:1",
            "--node",
            "here",
            "--state-dir",
            tmp_path / "agent",
        )
        here.until(lambda: nodes(here.ask) == ["here"])  # found by the note
        assert nodes(here.ask, "--scheduler", url) == ["here"]
        assert here.say("what-if", "--project", "vision", "--gpu", "0.5").returncode == 0
        listeners = {
            c.laddr
            for p in here._running
            for c in psutil.Process(p.pid).net_connections("inet")
            if c.status == psutil.CONN_LISTEN
        }
        assert listeners == set()


def test_tls_agents_with_certificates_and_no_token_anywhere(tmp_path: Path):
    papers = Papers(tmp_path / "papers")
    server, node = papers.of("127.0.0.1"), papers.of("n0")
    with box(tmp_path) as here:
        url = here.scheduler("--port", 0, "--tls-cert", server, "--tls-client-ca", papers.ca)
        assert url.startswith("https://")
        files = {
            "admin": here.state / "admin.token",
            "agent": tmp_path / "agent.token",
            "alice": tmp_path / "alice.token",
        }
        admin = ("--scheduler", url, "--token-file", files["admin"], "--ca-file", papers.ca)
        assert (
            here.say(
                "token", "create", "n*", "--scope", "agent", "--output", files["agent"], *admin
            ).returncode
            == 0
        )
        assert (
            here.say("token", "create", "alice", "--output", files["alice"], *admin).returncode == 0
        )
        agent = (
            "agent",
            "--scheduler",
            url,
            "--token-file",
            files["agent"],
            "--tls-ca",
            papers.ca,
            "--simulate",
            "A100:1",
        )
        for name in ("n0", "n1"):  # the certificate is n0's
            here.start(
                name,
                *agent,
                "--tls-cert",
                node,
                "--tls-key",
                node,
                "--node",
                name,
                "--state-dir",
                tmp_path / name,
            )
        here.until(lambda: nodes(here.ask, *admin) == ["n0"])
        here.until(lambda: "the certificate is for n0, not for node 'n1'" in here.logs())
        alice = ("--scheduler", url, "--token-file", files["alice"], "--ca-file", papers.ca)
        refused = here.say("token", "list", *alice)
        assert refused.returncode == 1
        secrets = {name: file.read_text().strip() for name, file in files.items()}
        answers = list(
            spoken(
                url, papers.ca, secrets["alice"], here.say("status", *alice).stdout, refused.stderr
            )
        )
        places = {
            "logs": here.logs(),
            "process list": "\n".join(here.commands()),
            "answers": "\n".join(answers),
            "note": (here.state / "scheduler.json").read_text(),
            "database": (here.state / "scheduler.sqlite").read_bytes().decode("latin-1"),
        }
        assert "GET /api/v1/nothing" in places["logs"]
        assert "cli agent" in places["process list"]
        assert len(answers) > 10
        for place, text in places.items():
            assert not [
                name
                for name, secret in secrets.items()
                if secret in text or secret.removeprefix("gpushare_") in text
            ], place


def spoken(url: str, ca: str, token: str, *more: str) -> Iterator[str]:
    """What a caller is answered who says their token in every wrong place."""
    yield from more
    trust = ssl.create_default_context(cafile=ca)
    for path in (
        "/api/v1/nothing",
        "/api/v1/openapi.json",
        "/metrics",
        "/healthz",
        "/api/v1/workloads/x",
        "/api/v1/status",
    ):
        for header in (f"Bearer {token}", f"Basic {token}", f"Bearer x{token}", ""):
            request = urllib.request.Request(url + path, headers={"Authorization": header})
            try:
                with urllib.request.urlopen(request, timeout=60, context=trust) as answer:
                    yield f"{answer.headers}{answer.read().decode()}"
            except urllib.error.HTTPError as error:
                yield f"{error.headers}{error.read().decode()}"
    for body in (f'{{"id": "a", "{token[:20]}": 1}}', "{"):
        request = urllib.request.Request(
            url + "/api/v1/workloads", body.encode(), {"Authorization": f"Bearer {token}"}
        )
        with (
            contextlib.suppress(urllib.error.HTTPError),
            urllib.request.urlopen(request, timeout=60, context=trust) as answer,
        ):
            yield answer.read().decode()
