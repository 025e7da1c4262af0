"""A server whose kernels run on a gateway, which is another Jupyter server: it shows their GPUs."""

from __future__ import annotations

import http.server
import json
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import websocket

from tests.environments import python_of
from tests.story.front_end import TOKEN, RestError, eventually
from tests.story.jupyter_process import Server
from tests.story.tools import ALLOCATE, TREE, Tool, program, tool
from tests.workers import free_port

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]
FRONT_TOKEN = "front"


class FrontServer(Server):
    """Has no GPUs and no kernels of its own."""

    def __init__(self, folder: Path, gateway: Server) -> None:
        self.gateway = gateway
        super().__init__(folder)
        self.token = FRONT_TOKEN
        self.pages: list[websocket.WebSocket] = []

    def _write_config(self) -> None:
        super()._write_config()
        file = self.folder / "config/jupyter_server_config.json"
        config = json.loads(file.read_text())
        config["IdentityProvider"] = {"token": FRONT_TOKEN}
        url = f"http://127.0.0.1:{self.gateway.port}"
        config["GatewayClient"] = {"url": url, "auth_token": TOKEN}
        file.write_text(json.dumps(config))

    def start(self) -> Server:
        self.start_jupyter()
        eventually(lambda: self._listens(self.port), "the server listens", 60)
        return self

    def stream(self) -> websocket.WebSocket:
        """A page's stream; the page logs in with the token in its address."""
        url = f"ws://127.0.0.1:{self.port}/gpushare/api/stream?token={FRONT_TOKEN}"
        self.pages.append(websocket.create_connection(url, timeout=60))
        return self.pages[-1]

    def stop(self) -> None:
        for page in self.pages:
            page.shutdown()
        super().stop()


class ServerWithoutExtension(Server):
    def _write_config(self) -> None:
        super()._write_config()
        file = self.folder / "config/jupyter_server_config.json"
        config = json.loads(file.read_text())
        config["ServerApp"]["jpserver_extensions"] = {"jupyter_gpushare": False}
        file.write_text(json.dumps(config))

    def start(self) -> Server:
        self.start_jupyter()
        eventually(lambda: self._listens(self.port), "the server listens", 60)
        return self


@pytest.fixture
def started(tmp_path):
    """Starts servers; they stop with the test."""
    made = []

    def start(server: Server) -> Server:
        made.append(server)
        return server.start()

    yield start
    for server in reversed(made):
        server.stop()
        sys.stdout.write(server.logs())


def test_the_front_server_shows_and_changes_the_shares_of_the_gateways_kernels(started, tmp_path):
    gateway = started(Server(tmp_path / "gateway", gpus=1))
    front = started(FrontServer(tmp_path / "front", gateway))
    assert front.status()["agent"]["reachable"]
    page = front.stream()
    assert json.loads(page.recv())["type"] == "state"
    nb = front.notebook("plain", "there.ipynb")
    request = {"gpu": 0.5, "project": "vision"}
    front.rest("POST", f"gpushare/api/kernels/{nb.kernel_id}", request)
    nb.until("attached")
    assert nb.ok(ALLOCATE).endswith("on a GPU\n")
    assert [one["kernel_id"] for one in gateway.status()["kernels"]] == [nb.kernel_id]
    eventually(lambda: nb.view["name"] == "there.ipynb", "the front server knows its name", 60)
    [shown], [there] = front.status()["kernels"], gateway.status()["kernels"]
    assert shown == {**there, "name": "there.ipynb"}
    assert front.allocated() == gateway.allocated() == 0.5
    _until_frame(page, lambda f: f["type"] == "kernel" and f["kernel"]["state"] == "attached")
    csv = front.rest("GET", "gpushare/api/nodes?format=csv&columns=name", raw=True)
    assert csv.startswith("name")
    with pytest.raises(RestError) as refused:
        front.rest("POST", f"gpushare/api/kernels/{nb.kernel_id}", {"gpu": "much"})
    assert refused.value.status == 400
    front.rest("DELETE", f"gpushare/api/kernels/{nb.kernel_id}")
    _until_frame(page, lambda f: f["type"] == "kernel" and f["kernel"]["name"] == "there.ipynb")
    eventually(lambda: gateway.allocated() == 0, "released")
    nb.shut_down()
    gateway.kill("jupyter")
    assert _closed(page) == 1013
    assert "Kernels of this server run on the gateway" in front.status()["agent"]["problem"]


class RecordingGateway(http.server.ThreadingHTTPServer):
    """Answers every request, and keeps its address and token."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), RecordingHandler)
        self.port, self.seen = self.server_address[1], []


class RecordingHandler(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.server.seen.append((self.path, self.headers["Authorization"]))
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"{}")

    def log_message(self, *_: object) -> None:
        """Nothing."""


@pytest.fixture
def recording():
    with RecordingGateway() as gateway:
        threading.Thread(target=gateway.serve_forever, daemon=True).start()
        yield gateway
        gateway.shutdown()


def test_the_gateways_token_is_used_for_our_part_of_it_only(started, recording, tmp_path):
    front = started(FrontServer(tmp_path / "front", recording))
    up = "kernels/%2e%2e%2f%2e%2e%2fapi", "kernels/..%252f..%252fapi", "kernels/../history"
    for path in (*up, "../../api/contents", "nothing"):
        with pytest.raises(RestError) as refused:
            front.rest("GET", f"gpushare/api/{path}")
        assert refused.value.status == 404
    assert recording.seen == []
    front.rest("GET", f"gpushare/api/nodes?format=csv&token={FRONT_TOKEN}", raw=True)
    assert recording.seen == [("/gpushare/api/nodes?format=csv", f"token {TOKEN}")]
    front.token = "wrong"
    with pytest.raises(RestError) as refused:
        front.status()
    assert refused.value.status == 403
    assert len(recording.seen) == 1


def test_a_gateway_without_the_extension_is_named(started, tmp_path):
    gateway = started(ServerWithoutExtension(tmp_path / "gateway"))
    front = started(FrontServer(tmp_path / "front", gateway))
    url = f"http://127.0.0.1:{gateway.port}"
    said = f"Kernels of this server run on the gateway {url}: look there for their GPUs."
    assert front.status()["agent"]["problem"].startswith(said)
    page = front.stream()
    state = json.loads(page.recv())
    assert state["status"]["agent"]["problem"].startswith(said)


@contextmanager
def kernel_gateway(lab: Server) -> Iterator[Tool]:
    """A Jupyter Kernel Gateway beside a server with a scheduler, with our provisioner."""
    port = free_port()
    argv = (str(python_of("gateway")), "-m", "kernel_gateway")
    options = (f"--KernelGatewayApp.port={port}", f"--KernelGatewayApp.auth_token={TOKEN}")
    with program(lab, *argv, *options, **TREE) as gateway:
        gateway.port = port
        eventually(lambda: lab._listens(port), f"it listens; {gateway.text}")
        yield gateway


def test_kernels_of_a_kernel_gateway_have_shares_which_its_machine_shows(started, tmp_path):
    lab = started(Server(tmp_path / "lab", gpus=1))
    with kernel_gateway(lab) as gateway:
        front = started(FrontServer(tmp_path / "front", gateway))
        one, two = [front.notebook("half", f"{name}.ipynb") for name in "ab"]
        assert one.ok(ALLOCATE).endswith("on a GPU\n")
        assert two.ok(ALLOCATE).endswith("on a GPU\n")
        assert lab.allocated() == 1
        third = front.notebook("half", "c.ipynb")
        waiting = third.submit(ALLOCATE)
        third.until_shown(waiting, "Needs 0.5 GPU")
        said = f"Kernels of this server run on the gateway http://127.0.0.1:{gateway.port}: look"
        assert front.status()["agent"]["problem"].startswith(said)
        assert "jupyter gpushare status" in front.status()["agent"]["problem"]
        with tool(lab, "jupyter-gpushare", "status") as status:
            assert status.wait() == 0, status.text
            assert one.kernel_id in status.text
            assert "WaitingForFreeGPU" in status.text
        one.shut_down()
        assert third.collect(waiting).ok
        front.kill("jupyter")  # it would wait long for its gateway
        gateway.process.kill()
        eventually(lambda: lab.allocated() == 0, "the shares are free", 30)
    lab.nothing_is_left()


def _until_frame(page: websocket.WebSocket, seen) -> None:
    while not seen(json.loads(page.recv())):
        pass


def _closed(page: websocket.WebSocket) -> int:
    """The code of the end of the stream."""
    while True:
        opcode, data = page.recv_data(control_frame=True)
        if opcode == websocket.ABNF.OPCODE_CLOSE:
            return int.from_bytes(data[:2], "big")
