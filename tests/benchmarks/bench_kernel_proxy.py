"""The kernel proxy compared with a direct connection: `python -m
tests.benchmarks.bench_kernel_proxy`.

Start: a bash kernel. Latency and rate: a kernel that answers at once, so that only the transport is
measured. Throughput: 1 GB of text and of binary buffers of an ipykernel. Rounds alternate between
both ways, because load of the machine affects both alike. Exit 1: a target was missed.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
from jupyter_client.blocking import BlockingKernelClient

from tests.benchmarks.machine import print_speed
from tests.workers import free_port

STARTS = 15
CHANNELS = ("shell", "iopub", "stdin", "control", "hb")
ROUND_TRIPS, CELLS, UNDER_WAY, ROUNDS = 2000, 2000, 200, 5
LATENCY_BAR_MS, TEXT_BAR, BINARY_BAR, RATE_BAR = 1.0, 0.80, 0.55, 1000
TEXT = "import sys\nfor _ in range(1000): sys.stdout.write('x' * 1_000_000); sys.stdout.flush()"
BINARY = """
from ipykernel.comm import Comm
comm, data = Comm(target_name='t'), bytes(8 << 20)
for _ in range(125): comm.send({}, buffers=[data])
"""


@contextlib.contextmanager
def kernel(*argv: str) -> Iterator[tuple[list[BlockingKernelClient], psutil.Process]]:
    """A client that is connected directly, one through the proxy, and the proxy's process."""
    folder = Path(tempfile.mkdtemp())
    files = {name: _connection_file(folder / f"{name}.json") for name in ("front", "back")}
    ours, theirs = socket.socketpair()
    proxy = [sys.executable, "-m", "jupyter_gpushare.kernel_proxy", "--fd", str(theirs.fileno())]
    processes = [
        subprocess.Popen([sys.executable, "-m", *argv, str(files["back"])], start_new_session=True),
        subprocess.Popen(
            [*proxy, "--front", str(files["front"]), "--back", str(files["back"])],
            pass_fds=[theirs.fileno()],
            start_new_session=True,
        ),
    ]
    clients = []
    for name in ("back", "front"):
        _wait_for_port(json.loads(files[name].read_text())["hb_port"])
        client = BlockingKernelClient(connection_file=str(files[name]))
        client.load_connection_file()
        client.start_channels(stdin=False, control=False)
        client.kernel_info(reply=True, timeout=30)
        client.iopub_channel.socket.unsubscribe(b"")  # only one receives outputs at a time
        clients.append(client)
    try:
        yield clients, psutil.Process(processes[1].pid)
    finally:
        for client in clients:
            client.stop_channels()
        for process in processes:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        ours.close()


def started_in(argv: list[str], *, proxied: bool) -> float:
    """Seconds from the launch of a kernel, and of the proxy beside it, to the first reply."""
    folder = Path(tempfile.mkdtemp())
    files = {name: _connection_file(folder / f"{name}.json") for name in ("front", "back")}
    ours, theirs = socket.socketpair()
    proxy = [sys.executable, "-m", "jupyter_gpushare.kernel_proxy", "--fd", str(theirs.fileno())]
    proxy += ["--front", str(files["front"]), "--back", str(files["back"])]
    commands = [proxy, argv] if proxied else [argv]
    begun = time.perf_counter()
    processes = [
        subprocess.Popen(
            command if command is proxy else [*command, str(files["back"])],
            pass_fds=[theirs.fileno()],
            start_new_session=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for command in commands
    ]
    client = BlockingKernelClient(connection_file=str(files["front" if proxied else "back"]))
    client.load_connection_file()
    client.start_channels()
    client.wait_for_ready(timeout=60)
    took = time.perf_counter() - begun
    client.stop_channels()
    for process in processes:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    ours.close()
    theirs.close()
    return took


def starts() -> bool:
    """A bash kernel alone and behind the proxy, in turns. Bar: 1.10 times as long."""
    argv = [sys.executable, "-m", "bash_kernel", "-f"]
    times: dict[bool, list[float]] = {False: [], True: []}
    for i in range(STARTS + 1):
        for proxied, taken in times.items():
            took = started_in(argv, proxied=proxied)
            if i:  # the first start compiles
                taken.append(took)
    alone, behind = statistics.median(times[False]), statistics.median(times[True])
    sys.stdout.write(
        f"start of a bash kernel: alone {alone:.3f} s, behind the proxy {behind:.3f} s,"
        f" {behind / alone:.2f} times\n"
    )
    return behind <= 1.10 * alone


def _connection_file(path: Path) -> Path:
    ports = {f"{channel}_port": free_port() for channel in CHANNELS}
    shared = {"transport": "tcp", "ip": "127.0.0.1", "key": "k", "signature_scheme": "hmac-sha256"}
    path.write_text(json.dumps({**shared, **ports}))
    return path


def _wait_for_port(port: int) -> None:
    for _ in range(1000):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.02)
    raise TimeoutError(port)


def round_trips(client: BlockingKernelClient, count: int) -> list[float]:
    """Milliseconds from request to reply, one after another."""
    times = []
    for _ in range(count):
        begun = time.perf_counter()
        client.execute("1")
        client.get_shell_msg(timeout=30)
        times.append((time.perf_counter() - begun) * 1000)
    return times


def rate(client: BlockingKernelClient) -> float:
    """Requests per second, many of them under way: fewer than the queues of ZeroMQ hold."""
    begun = time.perf_counter()
    for i in range(CELLS + UNDER_WAY):
        if i < CELLS:
            client.execute("1")
        if i >= UNDER_WAY:
            client.get_shell_msg(timeout=30)
    return CELLS / (time.perf_counter() - begun)


def throughput(client: BlockingKernelClient, code: str) -> float:
    """MB/s from the first to the last byte that arrives at the client, unread by Jupyter."""
    iopub = client.iopub_channel.socket
    iopub.subscribe(b"")
    while iopub.poll(300):  # also until the subscription has arrived
        iopub.recv_multipart()
    begun, received = time.perf_counter(), 0
    client.execute(code, store_history=False)
    while received < 1e9:
        if not iopub.poll(60_000):
            raise TimeoutError(f"{received} bytes")
        received += sum(len(frame) for frame in iopub.recv_multipart(copy=False))
    taken = time.perf_counter() - begun
    client.get_shell_msg(timeout=30)
    iopub.unsubscribe(b"")
    return received / 1e6 / taken


def latency() -> bool:
    """Overhead per message, and rate."""
    times: dict[str, list[float]] = {"direct": [], "proxy": []}
    rates: dict[str, list[float]] = {"direct": [], "proxy": []}
    with kernel("tests.benchmarks.echo_kernel") as (clients, process):
        for _ in range(ROUNDS):
            for name, client in zip(times, clients, strict=True):
                times[name] += round_trips(client, ROUND_TRIPS // ROUNDS)
                rates[name].append(rate(client))
        begun = sum(process.cpu_times()[:2])
        round_trips(clients[1], ROUND_TRIPS)
        cpu_us = (sum(process.cpu_times()[:2]) - begun) / ROUND_TRIPS * 1e6
    found = {name: _quantiles(seen) for name, seen in times.items()}
    for name, (p50, p99) in found.items():
        sys.stdout.write(
            f"round trip, {name:<6} p50 {p50:.2f} ms, p99 {p99:.2f} ms, "
            f"{statistics.median(rates[name]):.0f} requests/s\n"
        )
    over = [found["proxy"][i] - found["direct"][i] for i in (0, 1)]
    sys.stdout.write(f"overhead of a round trip: p50 {over[0]:.2f} ms, p99 {over[1]:.2f} ms\n")
    sys.stdout.write(f"processor time of the proxy for a round trip: {cpu_us:.0f} us\n")
    return over[1] <= 2 * LATENCY_BAR_MS and statistics.median(rates["proxy"]) >= RATE_BAR


def _quantiles(times: list[float]) -> tuple[float, float]:
    times = sorted(times)
    return statistics.median(times), times[int(len(times) * 0.99)]


def volume(what: str, code: str, bar: float) -> bool:
    """1 GB from the kernel to a client."""
    speeds: dict[str, list[float]] = {"direct": [], "proxy": []}
    with kernel("ipykernel_launcher", "-f") as (clients, _):
        for _ in range(ROUNDS):
            for name, client in zip(speeds, clients, strict=True):
                speeds[name].append(throughput(client, code))
    direct, proxy = (statistics.median(seen) for seen in speeds.values())
    sys.stdout.write(
        f"{what}: direct {direct:.0f} MB/s, proxy {proxy:.0f} MB/s = {proxy / direct:.0%}\n"
    )
    return proxy / direct >= bar


def main() -> int:
    passed = [starts(), latency(), volume("1 GB of text", TEXT, TEXT_BAR)]
    passed.append(volume("1 GB of binary buffers", BINARY, BINARY_BAR))
    return 0 if all(passed) else 1


if __name__ == "__main__":
    print_speed()
    sys.exit(main())
