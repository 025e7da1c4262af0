"""Other users of the machine reach the proxy's ports: without the key they change nothing."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest
import zmq

pytestmark = pytest.mark.slow
DELIMITER = b"<IDS|MSG>"
MIB = 1 << 20
NESTED = b'{"msg_type":"execute_request","msg_id":' + b"[" * MIB
MALFORMED = (
    [b""],
    [DELIMITER],
    [b"x"] * 10_000,
    [DELIMITER, b"", b"\xff", b"", b"", b""],
    [DELIMITER, b"0" * 64, NESTED, b"{}", b"{}", b"{}"],
)


@pytest.fixture
def unknown_sender():
    """Connects to a port of the proxy."""
    with zmq.Context() as context:
        opened = []

        def connect(kernel, channel: str, kind: int = zmq.DEALER):
            port = json.loads(kernel.front.read_text())[f"{channel}_port"]
            opened.append(context.socket(kind))
            opened[-1].linger = 0
            opened[-1].connect(f"tcp://127.0.0.1:{port}")
            return opened[-1]

        yield connect
        for one in opened:
            one.close()


def answers(nb) -> bool:
    return nb.client.kernel_info(reply=True, timeout=40)["content"]["status"] == "ok"


def test_a_message_with_a_wrong_signature_reaches_neither_gate_nor_kernel(agent, start):
    agent.kernel["state"], agent.holding = "attached", True
    nb = start().client()
    nb.client.session.key = b"wrong"
    nb.submit("raise SystemExit")
    nb.client.session.key = b"secret"
    assert answers(nb)
    assert "cell_start" not in agent.received_kinds()


def test_malformed_messages_do_not_end_the_proxy(start, unknown_sender):
    kernel = start("sensitive")
    nb = kernel.client()
    for channel in ("shell", "control", "stdin"):
        sender = unknown_sender(kernel, channel)
        for frames in MALFORMED:
            sender.send_multipart(frames)
    assert nb.run("print('ran')").text == "ran\n"
    assert kernel.proxy.poll() is None


def test_a_signed_message_that_no_parser_can_read_does_not_end_the_proxy(start, agent):
    """From a client with the key, whose own kernel would drop it as well."""
    agent.kernel["state"] = "attached"
    kernel = start()
    nb = kernel.client()
    session = nb.client.session
    content = b'{"code": ' + b"[" * MIB
    good = b'{"msg_type":"execute_request","msg_id":"m"}'
    for parts in ([NESTED, b"{}", b"{}", b"{}"], [good, b"{}", b"{}", content]):
        nb.client.shell_channel.socket.send_multipart([DELIMITER, session.sign(parts), *parts])
    nb.client.shell_channel.send(session.msg("execute_request", {"no": "code"}))
    assert nb.run("print('ran')").text == "ran\n"
    first, second = agent.receive("cell_start")["n"], agent.receive("cell_end")["n"]
    assert first == second, "only the last request was a cell"


def test_an_unknown_sender_cannot_fill_the_memory_while_the_kernel_does_not_read(start):
    kernel = start()
    nb = kernel.client()
    before = most_memory(kernel.proxy.pid)
    kernel.kernel.send_signal(signal.SIGSTOP)
    with zmq.Context() as context:  # its end waits until everything is sent
        sender = context.socket(zmq.DEALER)
        sender.connect(f"tcp://127.0.0.1:{json.loads(kernel.front.read_text())['shell_port']}")
        for _ in range(600):
            sender.send_multipart([DELIMITER, b"0" * 64, b"{}", b"{}", b"{}", b"x" * MIB])
        sender.close(linger=60_000)
    kernel.kernel.send_signal(signal.SIGCONT)
    assert answers(nb)
    assert most_memory(kernel.proxy.pid) - before < 300 * MIB


def most_memory(pid: int) -> int:
    """Bytes that a process has ever used at once."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("VmHWM"))


def test_replies_of_a_process_that_took_the_kernels_ports_are_dropped(agent, start):
    agent.kernel["state"] = "attached"
    nb = start("lying").client()
    nb.client.execute("1")
    assert agent.receive("cell_start")
    nb.client.kernel_info()
    assert nb.client.get_shell_msg(timeout=40)["msg_type"] == "kernel_info_reply"
    assert "cell_end" not in agent.received_kinds()


def test_subscribers_that_send_nonsense_change_nothing(start, unknown_sender):
    kernel = start()
    nb = kernel.client()
    other = unknown_sender(kernel, "iopub", zmq.XSUB)
    for frame in (b"garbage", b"\x01" * 1000, b"\x00other", b""):
        other.send(frame)
    assert nb.run("print('ran')").text == "ran\n"


def test_the_kernels_connection_file_is_readable_by_its_user_only(tmp_path, monkeypatch):
    from jupyter_gpushare.server_extension.launch.proxy_process import ProxyProcess

    front = tmp_path / "kernel-1.json"
    front.write_text(json.dumps({"transport": "tcp", "ip": "127.0.0.1", "key": "secret"}))
    proxy = ProxyProcess(str(front), lambda _: None)
    assert proxy.back.stat().st_mode & 0o777 == 0o600
    assert proxy.back.parent.stat().st_mode & 0o777 == 0o700
    proxy._stop()
    assert not proxy.back.parent.exists()
