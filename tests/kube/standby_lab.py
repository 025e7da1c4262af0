"""The installation with two schedulers on PostgreSQL: a leader and a standby."""

from __future__ import annotations

import base64
from typing import Any, Final

import httpx

from tests.kube.lab import NAMESPACE, Lab, url_of
from tests.kube.node import OneNodeCluster
from tests.scheduler.databases import Cluster, Database

__all__ = ["StandbyLab"]

SECRET: Final = "gpushare-database"
ADDRESS: Final = "http://gpushare-scheduler-{}.gpushare-scheduler.gpushare.svc:8470"
Values = dict[str, Any]


class StandbyLab(Lab):
    """`server`: listens on a unix socket of this machine; its folder is a volume of the pods."""

    replicas = 2

    def __init__(self, cluster: OneNodeCluster, server: Cluster, database: Database) -> None:
        super().__init__(cluster)
        self._database = database
        self._socket_dir = str(server.folder)
        server.folder.chmod(0o755)  # of the user postgres; the pods have others
        both = ",".join(ADDRESS.format(number) for number in range(2))
        self.hub.values["singleuser"]["extraEnv"]["GPUSHARE_SCHEDULER"] = both

    def _prepare(self) -> None:
        super()._prepare()
        url = base64.b64encode(self._database.url.encode()).decode()
        self.api.apply(
            {
                "apiVersion": "v1",
                "kind": "Secret",
                "metadata": {"name": SECRET, "namespace": NAMESPACE},
                "data": {"url": url},
            }
        )

    def values(self) -> Values:
        values = super().values()
        scheduler = values["scheduler"]
        volume = {"name": "database-socket", "hostPath": {"path": self._socket_dir}}
        mount = {"name": "database-socket", "mountPath": self._socket_dir}
        values["scheduler"] = scheduler | {
            "replicas": self.replicas,
            "database": {"type": "postgresql", "existingSecret": SECRET},
            "extraVolumes": [*scheduler["extraVolumes"], volume],
            "extraVolumeMounts": [*scheduler["extraVolumeMounts"], mount],
        }
        return values

    def scheduler_pod(self, *, leads: bool) -> Values:
        """The pod of the leader, or of the standby. Raises StopIteration."""
        return next(pod for pod in self.pods("scheduler") if self._leads(pod) is leads)

    def _leads(self, pod: Values) -> bool | None:
        """None: it does not answer."""
        try:
            return self._http.get(f"{url_of(pod)}/readyz").status_code == 200
        except (httpx.HTTPError, KeyError):
            return None
