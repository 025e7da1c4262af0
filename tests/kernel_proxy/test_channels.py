"""What passes through the proxy, and how it ends."""

from __future__ import annotations

import json
import tempfile

import pytest
import zmq

pytestmark = pytest.mark.slow


def test_input_reaches_the_cell_that_asks_for_it(start):
    nb = start().client()
    message = nb.client.execute("print('got', input('name? '))", allow_stdin=True)
    request = nb.client.get_stdin_msg(timeout=20)
    assert request["content"]["prompt"] == "name? "
    nb.client.input("ada")
    assert nb.collect(message).text == "got ada\n"


def test_binary_buffers_and_two_clients(start):
    """Every client of the kernel receives all outputs unchanged."""
    kernel = start()
    nb, other = kernel.client(), kernel.client()
    code = (
        "from ipykernel.comm import Comm\n"
        "comm = Comm(target_name='t')\n"
        "comm.send({}, buffers=[bytes(range(256)) * 1000])"
    )
    cell = nb.submit(code)
    assert nb.collect(cell).ok
    while (message := other.client.get_iopub_msg(timeout=20))["msg_type"] != "comm_msg":
        pass
    assert bytes(message["buffers"][0]) == bytes(range(256)) * 1000
    assert message["parent_header"]["msg_id"] == cell


def test_the_clients_connection_is_encrypted_with_the_keys_of_their_file(start):
    public, secret = zmq.curve_keypair()
    keys = {"curve_publickey": public.decode(), "curve_secretkey": secret.decode()}
    kernel = start(keys=keys)
    nb = kernel.client()
    assert nb.client.curve_publickey == public
    assert nb.run("print('ran')").text == "ran\n"
    assert not _answers_in_the_clear(kernel)


def test_unix_sockets(start):
    with tempfile.TemporaryDirectory() as folder:  # a path of at most 107 bytes
        nb = start(keys={"transport": "ipc", "ip": f"{folder}/k"}).client()
        assert nb.run("print('ran')").text == "ran\n"


def _answers_in_the_clear(kernel) -> bool:
    port = json.loads(kernel.front.read_text())["hb_port"]
    with zmq.Context() as context, context.socket(zmq.REQ) as heart:
        heart.linger = 0
        heart.connect(f"tcp://127.0.0.1:{port}")
        heart.send(b"ping")
        return bool(heart.poll(500))


def test_shutdown_answers_waiting_cells(agent, start):
    agent.kernel["state"], agent.holding = "pending", True
    kernel = start()
    nb = kernel.client()
    cell = nb.submit("print('ran')")
    nb.until_shown(cell, "Waiting for quota.")
    nb.client.shutdown()
    assert "the kernel was shut down" in nb.collect(cell).text
    assert nb.client.get_control_msg(timeout=20)["msg_type"] == "shutdown_reply"
    assert kernel.kernel.wait(20) == 0
    kernel.command(do="stop")
    assert kernel.proxy.wait(20) == 0


def test_the_proxy_ends_after_a_kernel_that_is_not_restarted(start):
    """Jupyter gives up after some crashes, and calls no hook then."""
    kernel = start()
    kernel.client()
    kernel.kernel.kill()
    assert kernel.proxy.wait(20) == 0


def test_the_kernel_ends_with_its_server(start):
    """Some kernels do not notice that their parent has gone."""
    kernel = start("sensitive")
    kernel.client()
    kernel.socket.close()
    assert kernel.kernel.wait(20) is not None
    assert kernel.proxy.wait(20) == 0
