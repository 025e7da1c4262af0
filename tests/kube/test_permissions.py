"""The chart's roles on a real control plane: the scheduler uses every verb, asks for nothing else,
and `kube check` names each one that is missing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from jupyter_gpushare.kube import names
from jupyter_gpushare.kube.api_client import ClusterApi
from jupyter_gpushare.kube.check_facts import read_facts
from jupyter_gpushare.kube.checks import check_cluster
from jupyter_gpushare.kube.engine import EngineConfig
from tests.kube.audit import Verb, granted, used
from tests.kube.control_plane import ControlPlane, until
from tests.kube.helm import Helm
from tests.kube.kubernetes_scheduler import Kubernetes, until_async

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

NAMESPACE: Final = "permissions-test"
OPERATOR: Final = "permissions-operator"
VALUES: Final = {"gpus": {"maxPerNode": 2, "injection": "none"}, "gpuOperatorNamespace": OPERATOR}
NODE: Final = "permissions0"
ROLES: Final = "/apis/rbac.authorization.k8s.io/v1"
Rules = list[dict[str, Any]]


class Installed:
    """The chart on a cluster without kubelets: its pods do not run."""

    def __init__(self, cluster: ControlPlane, helm: Helm) -> None:
        self.cluster = cluster
        self.granted = granted(helm.render(VALUES, NAMESPACE))

    def scheduler_account(self) -> Path:
        """A kubeconfig with the permissions of the chart's scheduler."""
        token = self.cluster.account_token(NAMESPACE, names.SCHEDULER_ACCOUNT)
        return self.cluster.certificates.with_token("permissions", token)

    def agent_token(self) -> str:
        """Of the pod that the chart's DaemonSet has on the node."""
        api, path = self.cluster.api, f"/api/v1/namespaces/{NAMESPACE}/pods"
        selector = f"{names.COMPONENT_LABEL}={names.COMPONENT_AGENT}"
        pod = until(lambda: api.items(path, labelSelector=selector), "the agent's pod")[0]
        self.cluster.set_pod_status(pod)
        account, audience = names.AGENT_ACCOUNT, names.AUDIENCE
        return self.cluster.account_token(NAMESPACE, account, audience=audience, pod=pod)

    def without(self, missing: Verb) -> tuple[str, Rules, Rules]:
        """The role's path, its rules, and its rules without a verb."""
        place, kind = f"/namespaces/{missing.namespace}", "roles"
        path = f"{ROLES}{place}/{kind}" if missing.namespace else f"{ROLES}/clusterroles"
        path += f"/{names.SCHEDULER_ACCOUNT}"
        rules = self.cluster.api.get(path)["rules"]
        left = [
            {**rule, "verbs": [verb for verb in rule["verbs"] if verb != missing.verb]}
            if missing.resource in rule["resources"]
            else rule
            for rule in rules
        ]
        return path, rules, [rule for rule in left if rule["verbs"]]


@pytest.fixture(scope="module")
def installed(
    control_plane: ControlPlane, helm: Helm, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Installed]:
    for name in (NAMESPACE, OPERATOR):
        control_plane.api.namespace(name)
    chart = Helm(tmp_path_factory.mktemp("helm"), control_plane.kubeconfig)
    chart.install(VALUES, NAMESPACE)
    control_plane.add_node(NODE, gpus=2, **{names.MANAGED_LABEL: "true"})
    yield Installed(control_plane, helm)
    control_plane.api.delete(f"/api/v1/nodes/{NODE}")
    chart.uninstall(NAMESPACE)


def test_the_scheduler_uses_every_verb_and_asks_for_nothing_else(
    installed: Installed, tmp_path: Path
) -> None:
    """With the GPU Operator's namespace, whose pods it reads too."""
    config = EngineConfig(NAMESPACE, operator_namespace=OPERATOR)
    cluster, account = installed.cluster, installed.scheduler_account()

    async def run() -> None:
        token = installed.agent_token()
        async with (
            Kubernetes.beside(cluster, tmp_path, config, account) as kubernetes,
            kubernetes.agent(NODE, token),
        ):
            await until_async(
                lambda: used(cluster, NAMESPACE) >= installed.granted, "every verb is used"
            )

    asyncio.run(run())
    assert used(cluster, NAMESPACE) == installed.granted
    assert used(cluster, NAMESPACE, names.AGENT_ACCOUNT) == set()


async def missing_permissions(kubeconfig: Path) -> list[str]:
    """In this process, since a new one takes seconds."""
    api = ClusterApi(kubeconfig=str(kubeconfig))
    await api.open()
    try:
        results = check_cluster(await read_facts(api, NAMESPACE, OPERATOR))
    finally:
        await api.close()
    return [
        result.message
        for result in results
        if result.subject == "permission" and result.verdict == "missing"
    ]


def test_check_names_each_permission_that_was_taken_away(installed: Installed) -> None:
    """As the administrator, and as the scheduler itself."""
    cluster, own = installed.cluster, installed.scheduler_account()
    cluster.restricted.add(NAMESPACE)
    for missing in sorted(installed.granted):
        path, rules, left = installed.without(missing)
        cluster.api.merge(path, {"rules": left})
        try:
            for kubeconfig in (cluster.kubeconfig, own):
                found = asyncio.run(missing_permissions(kubeconfig))
                assert len(found) == 1, (missing, found)
                assert f"may not {missing.verb} {missing.resource}" in found[0]
                assert not missing.namespace or f"namespace {missing.namespace}" in found[0]
        finally:
            cluster.api.merge(path, {"rules": rules})
