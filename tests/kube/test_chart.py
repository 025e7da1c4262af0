"""The chart, judged by Helm's schema check and by a real API server."""

from __future__ import annotations

import json
from typing import Any

import pytest

from jupyter_gpushare.kube import names
from tests.kube.control_plane import ControlPlane, until
from tests.kube.helm import CHART, Helm, HelmFailed

pytestmark = pytest.mark.timeout(600)

ACCEPTED: dict[str, dict[str, Any]] = {
    "defaults": {},
    "PostgreSQL with a standby": {
        "scheduler": {
            "replicas": 2,
            "database": {"type": "postgresql", "existingSecret": "database", "key": "uri"},
        },
        "networkPolicy": {"databasePort": 6432},
    },
    "TLS with certificates of agents": {
        "scheduler": {"tls": {"existingSecret": "tls", "clientCaKey": "ca.crt"}},
        "agent": {"caSecret": "ca", "tlsSecret": "agent-tls"},
    },
    "JupyterHub": {
        "scheduler": {
            "hub": {"apiUrl": "http://hub.jupyterhub.svc:8081/hub/api", "existingSecret": "hub"}
        }
    },
    "simulated GPUs": {"agent": {"simulate": "A100:2"}, "gpus": {"reserve": False}},
    "NRI": {"gpus": {"injection": "nri"}},
    "volume mounts, privileged": {
        "gpus": {"injection": "volumeMounts"},
        "agent": {"privileged": True},
    },
    "no injection, another count label": {
        "gpus": {"injection": "none", "countLabel": "example.org/gpus", "maxPerNode": 4},
        "slots": {"priority": 10},
    },
    "admission policy": {"admissionPolicy": {"enabled": True, "allowedNamespaces": ["hub"]}},
    "monitoring": {
        "serviceMonitor": {"enabled": True, "interval": "1m", "labels": {"release": "prometheus"}},
        "networkPolicy": {"monitoringNamespace": "monitoring"},
        "gpuOperatorNamespace": "default",
    },
    "no network policies, own admin token": {
        "networkPolicy": {"enabled": False},
        "scheduler": {"adminToken": {"existingSecret": "mine", "key": "secret"}},
        "clusterDomain": "cluster.local",
    },
    "everything about pods": {
        "image": {"repository": "registry.example.org/gpushare", "tag": "1", "pullSecrets": ["r"]},
        "scheduler": {
            "config": {"retention_days": 30},
            "storage": {"size": "1Gi", "className": "fast"},
            "nodeSelector": {"a": "b"},
            "tolerations": [{"operator": "Exists"}],
            "podLabels": {"team": "gpu"},
            "podAnnotations": {"a": "b"},
            "priorityClassName": "system-cluster-critical",
            "affinity": {"podAntiAffinity": {}},
            "extraEnv": [{"name": "A", "value": "b"}],
            "extraVolumes": [{"name": "v", "emptyDir": {}}],
            "extraVolumeMounts": [{"name": "v", "mountPath": "/v"}],
        },
        "agent": {
            "podLabels": {"team": "gpu"},
            "podAnnotations": {"a": "b"},
            "nodeSelector": {"a": "b"},
            "tolerations": [],
            "priorityClassName": "",
            "maxUnavailable": 1,
            "seLinuxType": "spc_t",
            "extraArgs": ["--host-memory=64GiB"],
            "extraEnv": [{"name": "A", "value": "b"}],
            "extraVolumes": [{"name": "v", "emptyDir": {}}],
            "extraVolumeMounts": [{"name": "v", "mountPath": "/v"}],
        },
        "policy": {"departments": [], "projects": []},
    },
}

REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "unknown key": ({"gpu": {}}, "additional properties 'gpu'"),
    "unknown key of a part": ({"agent": {"simulated": "A100:2"}}, "/agent': additional"),
    "unknown key of an image": ({"image": {"name": "x"}}, "/image': additional"),
    "no number": ({"gpus": {"maxPerNode": "8"}}, "/gpus/maxPerNode"),
    "no slots": ({"gpus": {"maxPerNode": 0}}, "/gpus/maxPerNode"),
    "unknown injection": ({"gpus": {"injection": "cdi"}}, "/gpus/injection"),
    "no boolean": ({"gpus": {"reserve": "yes"}}, "/gpus/reserve"),
    "priority of the system": ({"slots": {"priority": 2000000000}}, "/slots/priority"),
    "two schedulers on SQLite": ({"scheduler": {"replicas": 2}}, "/scheduler/replicas"),
    "PostgreSQL without a Secret": (
        {"scheduler": {"database": {"type": "postgresql"}}},
        "/scheduler/database/existingSecret",
    ),
    "unknown database": (
        {"scheduler": {"database": {"type": "mysql"}}},
        "/scheduler/database/type",
    ),
    "volume without a unit": ({"scheduler": {"storage": {"size": "8"}}}, "/scheduler/storage/size"),
    "Hub without a token": (
        {"scheduler": {"hub": {"apiUrl": "http://hub:8081/hub/api"}}},
        "/scheduler/hub/existingSecret",
    ),
    "Hub without a scheme": (
        {"scheduler": {"hub": {"apiUrl": "hub:8081", "existingSecret": "hub"}}},
        "/scheduler/hub/apiUrl",
    ),
    "an option that the chart sets": (
        {"scheduler": {"config": {"db_url": "sqlite:///x"}}},
        "/scheduler/config/db_url",
    ),
    "simulation without a number": ({"agent": {"simulate": "A100"}}, "/agent/simulate"),
    "a relative directory": (
        {"agent": {"directories": {"run": "run/gpushare"}}},
        "/agent/directories/run",
    ),
    "no option": ({"agent": {"extraArgs": ["host-memory"]}}, "/agent/extraArgs/0"),
    "a name with capitals": ({"gpuOperatorNamespace": "GPU"}, "/gpuOperatorNamespace"),
    "no port": ({"networkPolicy": {"databasePort": 70000}}, "/networkPolicy/databasePort"),
    "a log level": ({"agent": {"logLevel": "loud"}}, "/agent/logLevel"),
    "an environment without names": (
        {"agent": {"extraEnv": [{"value": "x"}]}},
        "/agent/extraEnv/0",
    ),
}

SERVICE_MONITOR = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "servicemonitors.monitoring.coreos.com"},
    "spec": {
        "group": "monitoring.coreos.com",
        "scope": "Namespaced",
        "names": {"plural": "servicemonitors", "kind": "ServiceMonitor"},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "x-kubernetes-preserve-unknown-fields": True,
                    }
                },
            }
        ],
    },
}


@pytest.fixture(scope="module")
def server(control_plane: ControlPlane) -> ControlPlane:
    control_plane.api.namespace("chart-test")
    control_plane.api.apply(SERVICE_MONITOR)
    path = "/apis/monitoring.coreos.com/v1/servicemonitors"
    until(lambda: control_plane.api.get(path), "the kind ServiceMonitor is served")
    return control_plane


@pytest.mark.parametrize("values", ACCEPTED.values(), ids=ACCEPTED.keys())
def test_accepted_values(helm: Helm, server: ControlPlane, values: dict[str, Any]):
    """No warning of Helm, and the API server accepts each object, with strict fields."""
    helm.lint(values)
    items = helm.render(values, "chart-test")
    assert len(items) > 10
    for item in items:
        server.api.apply(item, namespace="chart-test", dry_run=True)


@pytest.mark.parametrize(("values", "path"), REFUSED.values(), ids=REFUSED.keys())
def test_refused_values(helm: Helm, values: dict[str, Any], path: str):
    assert path in refusal(helm, values)


@pytest.mark.parametrize("name", ["two schedulers on SQLite", "PostgreSQL without a Secret"])
def test_a_standby_without_postgresql_names_what_to_set(helm: Helm, name: str):
    text = refusal(helm, REFUSED[name][0])
    assert "PostgreSQL" in text
    assert "set scheduler.database." in text


def refusal(helm: Helm, values: dict[str, Any]) -> str:
    with pytest.raises(HelmFailed) as refused:
        helm.render(values)
    return str(refused.value)


def test_every_value_is_in_the_schema(helm: Helm):
    """The defaults are complete: a key that the schema knows has one."""

    def keys(schema: dict[str, Any], path: str) -> set[str]:
        found = {path} if path else set()
        for name, part in schema.get("properties", {}).items():
            if part is not False and name != "global":
                found |= keys(part, f"{path}/{name}")
        return found

    schema = json.loads((CHART / "values.schema.json").read_text())
    optional = {"/gpus", "/scheduler/config"}
    defaults = _paths(json.loads(helm.run("show", "values", CHART, "--jsonpath", "{@}")))
    missing = keys(schema, "") - defaults - optional
    assert not missing


def _paths(values: object, path: str = "") -> set[str]:
    found = {path} if path else set()
    if isinstance(values, dict):
        for name, value in values.items():
            found |= _paths(value, f"{path}/{name}")
    return found


def test_names_that_the_scheduler_expects(helm: Helm):
    """The chart and jupyter_gpushare/kube/names.py agree."""
    values = {"gpus": {"reserve": True, "maxPerNode": 3}}
    items = {(item["kind"], item["metadata"]["name"]): item for item in helm.render(values)}
    for slot in range(3):
        pod = items["DaemonSet", names.SLOT_NAME.format(slot)]["spec"]["template"]
        assert pod["metadata"]["labels"] == {
            names.NAME_LABEL: names.PART_OF,
            names.COMPONENT_LABEL: names.COMPONENT_SLOT,
            names.SLOT_LABEL: str(slot),
        }
        assert pod["spec"]["priorityClassName"] == names.PRIORITY_CLASS
    agent = items["DaemonSet", names.AGENT_NAME]["spec"]["template"]
    assert agent["metadata"]["labels"][names.COMPONENT_LABEL] == names.COMPONENT_AGENT
    assert agent["spec"]["serviceAccountName"] == names.AGENT_ACCOUNT
    token = agent["spec"]["volumes"][0]["projected"]["sources"][0]["serviceAccountToken"]
    assert token["audience"] == names.AUDIENCE
    assert token["expirationSeconds"] == names.TOKEN_LIFETIME_S
    environment = {one["name"]: one.get("value") for one in agent["spec"]["containers"][0]["env"]}
    assert environment["GPUSHARE_TOKEN_FILE"] == names.TOKEN_FILE
    assert names.NODE_NAME_VARIABLE in environment
    scheduler = items["StatefulSet", names.SCHEDULER_NAME]["spec"]["template"]
    assert scheduler["metadata"]["labels"][names.HUB_ACCESS_LABEL] == "true"
    assert scheduler["spec"]["serviceAccountName"] == names.SCHEDULER_ACCOUNT
    port = scheduler["spec"]["containers"][0]["ports"][0]["containerPort"]
    assert port == names.SCHEDULER_PORT


def test_clients_get_all_addresses(helm: Helm):
    values = ACCEPTED["PostgreSQL with a standby"] | {"clusterDomain": "example.org"}
    [agent] = [
        item
        for item in helm.render(values)
        if item["kind"] == "DaemonSet" and item["metadata"]["name"] == "gpushare-agent"
    ]
    variables = agent["spec"]["template"]["spec"]["containers"][0]["env"]
    [url] = [one["value"] for one in variables if one["name"] == "GPUSHARE_SCHEDULER"]
    host = "gpushare-scheduler-{}.gpushare-scheduler.gpushare.svc.example.org:8470"
    assert url == ",".join(f"http://{host.format(i)}" for i in range(2))


def test_the_chart_has_the_version_of_the_package(helm: Helm):
    package = CHART.parents[2] / "labextension/package.json"
    version = json.loads(package.read_text())["version"]
    chart = helm.run("show", "chart", CHART)
    assert f"appVersion: {version}" in chart
    assert f"\nversion: {version}" in chart
