"""A scheduler service on a real database with one simulated node; no network."""

from __future__ import annotations

from jupyter_gpushare import messages as m
from jupyter_gpushare.scheduler.auth.identity import Identity
from jupyter_gpushare.scheduler.policy.policy_file import default_demo_policy, parse_policy
from jupyter_gpushare.scheduler.service.service import SchedulerService
from jupyter_gpushare.scheduler.store.store import Store

ALICE = Identity("alice", (), "person")
ADMIN = Identity("root", (), "admin")
MIB = 80 * 1024


class Listener:
    """Remembers what was announced and sent."""

    def __init__(self) -> None:
        self.frames: list[m.SchedulerFrame] = []
        self.orders: list[m.ToAgent] = []

    def publish(self, frame: m.SchedulerFrame, project: str | None, user: str | None) -> None:
        self.frames.append(frame)

    def send(self, order: m.ToAgent) -> None:
        self.orders.append(order)


class SchedulerHarness:
    """A service on a database, with one node of two GPUs, that can be started again."""

    def __init__(self, url: str) -> None:
        self.url, self.time = url, 1_000_000
        self.listener = Listener()
        self.store: Store | None = None
        self.start()

    def start(self) -> None:
        self.close()
        self.store = Store(self.url)
        self.service = SchedulerService(
            self.store, parse_policy(default_demo_policy(2)), self.listener, clock=lambda: self.time
        )

    def close(self) -> None:
        if self.store is not None:
            self.store.close()

    def node(self) -> m.NodeReport:
        devices = [
            m.DeviceReport(index=i, uuid=f"SIM-{i}", model="Simulated", total_mib=MIB)
            for i in range(2)
        ]
        return m.NodeReport(name="n0", simulated=True, devices=devices)

    def joined(self) -> SchedulerHarness:
        self.service.agent_hello(m.AgentHello(version="1", node=self.node()), self.listener.send)
        self.service.run_cycle()
        return self

    def ask(self, id_: str, gpu: object = 0.5, **more: object) -> m.WorkloadView:
        request = m.WorkloadRequest(
            id=id_, pods=[m.PodRequest(name="kernel", gpu=gpu, nodes=["n0"])], **more
        )
        view = self.service.submit(ALICE, request)
        self.service.run_cycle()
        return self.service.queries.workload(ALICE, view.id)

    def leases(self) -> list[m.LeaseBody]:
        return [
            lease
            for record in self.service.unit_of_work.records.values()
            for lease in record.leases.values()
        ]

    def nothing_is_booked_twice(self) -> None:
        for device in range(2):
            here = [lease for lease in self.leases() if device in lease.planned_gpus]
            assert sum(lease.request_mib for lease in here) <= MIB, here
