"""The scheduler beside a real control plane with 200 nodes of 8 GPUs: when its state is right, how
many requests it makes, and how much memory the engine takes.
`python -m tests.benchmarks.bench_kubernetes [--nodes N] [--kernels N]`.

Nodes have no kubelet; their pods are bound by kube-scheduler and set to running by this program.
Scheduler, engine and all agents share this process, so times include the agents' work; grants are
also measured without Kubernetes, with the same agents. Targets: the right state 10 s after the
start and 3 s after an expired version; a cordon, a node that is not ready and a lost slot after
2 s; at most four watches, at most two requests a minute, none per kernel, and 120 MiB.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

from jupyter_gpushare import messages as m
from jupyter_gpushare.kube import names
from jupyter_gpushare.kube.api_client import ClusterApi, Resource
from jupyter_gpushare.kube.engine import EngineConfig, KubernetesEngine
from jupyter_gpushare.kube.integration import ServerSide, account_of
from jupyter_gpushare.kube.token_review import ServiceAccountTokens
from tests.benchmarks.machine import print_speed
from tests.kube.control_plane import ControlPlane, until
from tests.kube.helm import Helm
from tests.scheduler.agents import FakeAgent
from tests.scheduler.running_server import RunningServer, open_server

GPUS = 8
NAMESPACE = "gpushare"
POLICY = "projects: [{name: lab, pools: {default: {gpu: {quota: 100000}}}}]\n"
STEADY_S = 90.0
VALUES = {"gpus": {"maxPerNode": GPUS, "injection": "none"}}


class CountingApi(ClusterApi):
    """Counts watches, and can end them with an expired version."""

    def __init__(self, kubeconfig: Path) -> None:
        super().__init__(kubeconfig=str(kubeconfig))
        self.open_watches = self.most_watches = 0
        self.expire = asyncio.Event()

    @asynccontextmanager
    async def watch(
        self, resource: Resource, version: str, timeout_s: int
    ) -> AsyncGenerator[Any, None]:
        async with super().watch(resource, version, timeout_s) as watch:
            self.open_watches += 1
            self.most_watches = max(self.most_watches, self.open_watches)
            try:
                yield Expiring(watch, self.expire)
            finally:
                self.open_watches -= 1


class Expiring:
    """A watch that ends with 410 when the event is set."""

    def __init__(self, watch: Any, expire: asyncio.Event) -> None:
        self.watch, self.expire = watch, expire

    async def lines(self) -> AsyncIterator[bytes]:
        expired = asyncio.create_task(self.expire.wait())
        lines = self.watch.lines()
        try:
            while True:
                line = asyncio.create_task(anext(lines, b""))
                await asyncio.wait({line, expired}, return_when=asyncio.FIRST_COMPLETED)
                if expired.done():
                    yield b'{"type": "ERROR", "object": {"code": 410, "message": "expired"}}'
                    return
                if not line.result():
                    return
                yield line.result()
        finally:
            expired.cancel()
            line.cancel()
            await asyncio.gather(line, return_exceptions=True)


def build(cluster: ControlPlane, folder: Path, nodes: int) -> None:
    """Nodes, slots and agents, all running."""
    cluster.api.namespace(NAMESPACE)
    Helm(folder, cluster.kubeconfig).install(VALUES, NAMESPACE)
    with ThreadPoolExecutor(4) as pool:
        labels = {names.MANAGED_LABEL: "true"}
        list(pool.map(lambda i: cluster.add_node(f"n{i:03}", gpus=GPUS, **labels), range(nodes)))
        path = f"/api/v1/namespaces/{NAMESPACE}/pods"

        def bound() -> list[Any]:
            pods = cluster.api.items(path)
            found = [pod for pod in pods if pod["spec"].get("nodeName")]
            return found if len(found) >= nodes * (GPUS + 1) else []

        pods = until(bound, "all pods are bound", 300)
        list(pool.map(cluster.set_pod_status, pods))


def tokens(cluster: ControlPlane, nodes: int) -> dict[str, str]:
    """The token of each node's agent."""
    selector = f"{names.COMPONENT_LABEL}={names.COMPONENT_AGENT}"
    pods = cluster.api.items(f"/api/v1/namespaces/{NAMESPACE}/pods", labelSelector=selector)

    def token(pod: Any) -> tuple[str, str]:
        given = cluster.account_token(
            NAMESPACE, names.AGENT_ACCOUNT, audience=names.AUDIENCE, pod=pod
        )
        return pod["spec"]["nodeName"], given

    with ThreadPoolExecutor(4) as pool:
        found = dict(pool.map(token, pods))
    assert len(found) == nodes, len(found)
    return found


def say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def mib() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


async def seconds_until(condition: Callable[[], bool]) -> float:
    begun = time.perf_counter()
    async with asyncio.timeout(120):
        while not condition():
            await asyncio.sleep(0.01)
    return time.perf_counter() - begun


async def measure(cluster: ControlPlane, folder: Path, nodes: int, kernels: int) -> None:
    given = await asyncio.to_thread(tokens, cluster, nodes)
    async with AsyncExitStack() as stack:
        running = await stack.enter_async_context(open_server(folder, policy=POLICY))
        before = mib()
        api = CountingApi(cluster.kubeconfig)
        await api.open()  # as the command does before it serves: loads the client
        say(f"memory of the client               {mib() - before:8.0f} MiB")
        accepted = ServiceAccountTokens(api, account_of(NAMESPACE))
        engine = KubernetesEngine(
            api, EngineConfig(NAMESPACE), ServerSide(running.server), accepted
        )
        running.server.authenticator.external.insert(0, accepted)
        running.server.background_services.append(engine)
        engine.start()
        described = running.server.service.unit_of_work.nodes.platform
        begun = time.perf_counter()
        await seconds_until(lambda: all((p := described(n)) and not p.conditions for n in given))
        say(f"right state after the start        {time.perf_counter() - begun:8.2f} s")
        say(f"memory of client and engine        {mib() - before:8.0f} MiB")
        await connect(stack, running, given)
        requests = api.requests
        await grants(running, given, kernels)
        say(f"requests to Kubernetes meanwhile   {api.requests - requests:8}")
        await changes(running, cluster, api, engine)
        requests = api.requests
        say(f"(waiting {STEADY_S:.0f} s)")
        await asyncio.sleep(STEADY_S)
        per_minute = (api.requests - requests) * 60 / STEADY_S
        say(f"requests per minute                {per_minute:8.2f}")
        say(f"watches at once                    {api.most_watches:8}")


async def connect(stack: AsyncExitStack, running: RunningServer, given: dict[str, str]) -> None:
    begun = time.perf_counter()
    for name, token in given.items():
        agent = FakeAgent(name, GPUS)
        await stack.enter_async_context(agent.linked(running.client(token)))
    ready = running.server.service.unit_of_work.cluster.nodes
    await seconds_until(lambda: sum(state.node.ready for state in ready.values()) == len(given))
    say(f"{len(given)} agents connected and ready     {time.perf_counter() - begun:8.2f} s")


async def without_kubernetes(folder: Path, nodes: int, kernels: int) -> None:
    async with AsyncExitStack() as stack:
        running = await stack.enter_async_context(open_server(folder, policy=POLICY))
        every = [f"n{i:03}" for i in range(nodes)]
        given = {name: running.token(name, "agent") for name in every}
        say("without Kubernetes:")
        await connect(stack, running, given)
        await grants(running, given, kernels)


async def grants(running: RunningServer, given: dict[str, str], kernels: int) -> None:
    client, took = running.of("alice"), []
    records = running.server.service.unit_of_work.records
    for i in range(kernels):
        name = sorted(given)[i % len(given)]
        begun = time.perf_counter()
        body = m.WorkloadRequest(id=f"k{i}", pods=[m.PodRequest(name="k", gpu=0.5, nodes=[name])])
        await client.submit(body)
        async with asyncio.timeout(30):
            while not records[f"k{i}"].leases:
                await asyncio.sleep(0)
        took.append((time.perf_counter() - begun) * 1000)
    took.sort()
    p99 = took[len(took) * 99 // 100]
    say(f"grant of {kernels} kernels: median {statistics.median(took):.1f} ms, p99 {p99:.1f} ms")


async def changes(
    running: RunningServer, cluster: ControlPlane, api: CountingApi, engine: KubernetesEngine
) -> None:
    nodes = running.server.service.unit_of_work.cluster.nodes

    async def cordon(name: str, value: bool | None) -> float:
        body = {"spec": {"unschedulable": value}}
        await asyncio.to_thread(cluster.api.merge, f"/api/v1/nodes/{name}", body)
        return await seconds_until(lambda: nodes[name].node.ready == (value is None))

    shown = [await cordon("n000", value) for value in (True, None) * 5]
    say(f"cordon is seen (the longest of 10) {max(shown):8.2f} s")
    say(f"a node that is not ready           {await not_ready(running, cluster):8.2f} s")
    say(f"a lost slot                        {await lost_slot(running, cluster):8.2f} s")
    lists = engine.nodes.lists, engine.pods.lists
    api.expire.set()
    begun = time.perf_counter()
    await asyncio.sleep(0)
    await seconds_until(lambda: engine.nodes.lists > lists[0] and engine.pods.lists > lists[1])
    api.expire.clear()
    say(f"right state after a 410            {time.perf_counter() - begun:8.2f} s")


async def not_ready(running: RunningServer, cluster: ControlPlane) -> float:
    """The longest of both directions."""
    nodes, took = running.server.service.unit_of_work.cluster.nodes, []
    for value in (False, True):
        await asyncio.to_thread(cluster.set_node_status, "n001", ready=value)
        took.append(await seconds_until(lambda: nodes["n001"].node.ready == value))  # noqa: B023
    return max(took)


async def lost_slot(running: RunningServer, cluster: ControlPlane) -> float:
    nodes = running.server.service.unit_of_work.cluster.nodes
    selector = f"{names.COMPONENT_LABEL}={names.COMPONENT_SLOT}"
    path = f"/api/v1/namespaces/{NAMESPACE}/pods"
    pods = await asyncio.to_thread(cluster.api.items, path, labelSelector=selector)
    slot = next(pod for pod in pods if pod["spec"]["nodeName"] == "n002")
    await asyncio.to_thread(cluster.api.delete, cluster.api.path(slot), gracePeriodSeconds=0)
    return await seconds_until(lambda: not nodes["n002"].node.ready)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=200)
    parser.add_argument("--kernels", type=int, default=1000)
    options = parser.parse_args()
    print_speed()
    with tempfile.TemporaryDirectory() as folder:
        cluster = ControlPlane(Path(folder) / "cluster")
        try:
            cluster.start()
            helm = Path(folder) / "helm"
            helm.mkdir()
            build(cluster, helm, options.nodes)
            plain, place = Path(folder) / "plain", Path(folder) / "scheduler"
            plain.mkdir()
            place.mkdir()
            asyncio.run(without_kubernetes(plain, options.nodes, options.kernels))
            say("with Kubernetes:")
            asyncio.run(measure(cluster, place, options.nodes, options.kernels))
        finally:
            cluster.stop()


if __name__ == "__main__":
    main()
