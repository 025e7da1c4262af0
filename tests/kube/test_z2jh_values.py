"""docs/examples/z2jh/values.yaml: what the Hub makes of it, without a cluster."""

from __future__ import annotations

import asyncio
import json
import logging
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from kubernetes_asyncio.client import V1ObjectMeta, V1Pod, V1PodSpec
from kubespawner import KubeSpawner
from tornado.httpserver import HTTPServer
from tornado.testing import bind_unused_port
from tornado.web import Application, RequestHandler
from traitlets.config import Config

from jupyter_gpushare.kube import names
from tests.kube.z2jh import example_values

SHARE = "gpushare.jupyter.org/expected-share"


def hook(config: Config) -> Any:
    code = example_values()["hub"]["extraConfig"]["gpushare"]
    exec(compile(code, "extraConfig.gpushare", "exec"), {"c": config})
    return config.KubeSpawner.modify_pod_hook


class Scripted(RequestHandler):
    """A scheduler with one answer."""

    def initialize(self, status: int, body: dict[str, Any], delay: float, seen: list[Any]) -> None:
        self.answer = (status, body, delay, seen)

    async def post(self) -> None:
        status, body, delay, seen = self.answer
        seen.append((json.loads(self.request.body), self.request.headers["Authorization"]))
        await asyncio.sleep(delay)
        self.set_status(status)
        self.finish(body)


class Schedulers:
    def __init__(self) -> None:
        self.urls: list[str] = []
        self.seen: list[Any] = []
        self._servers: list[HTTPServer] = []

    def add(self, status: int, body: dict[str, Any], delay: float = 0) -> None:
        socket, port = bind_unused_port()
        options = {"status": status, "body": body, "delay": delay, "seen": self.seen}
        server = HTTPServer(Application([("/api/v1/what-if", Scripted, options)]))
        server.add_socket(socket)
        self._servers.append(server)
        self.urls.append(f"http://127.0.0.1:{port}")

    async def stop(self) -> None:
        for server in self._servers:
            server.stop()
            await server.close_all_connections()


async def preferred(
    monkeypatch: pytest.MonkeyPatch, schedulers: Schedulers, share: str | None = "0.5"
) -> list[str]:
    """The nodes that the hook prefers for a pod with this share."""
    monkeypatch.setenv("GPUSHARE_SCHEDULER", ",".join(schedulers.urls))
    annotations = {SHARE: share} if share is not None else None
    pod = V1Pod(metadata=V1ObjectMeta(annotations=annotations), spec=V1PodSpec(containers=[]))
    spawner = SimpleNamespace(api_token="secret", log=logging.getLogger("spawner"))
    try:
        changed = await hook(Config())(spawner, pod)
    finally:
        await schedulers.stop()
    if changed.spec.affinity is None:
        return []
    terms = changed.spec.affinity.node_affinity
    assert terms.required_during_scheduling_ignored_during_execution is None
    [term] = terms.preferred_during_scheduling_ignored_during_execution
    return term.preference.match_fields[0].values


def test_the_leader_names_the_node(monkeypatch: pytest.MonkeyPatch):
    async def scenario() -> None:
        schedulers = Schedulers()
        schedulers.add(503, {"error": {"code": "standby"}})
        schedulers.add(200, {"starts_now": True, "node": "n7"})
        assert await preferred(monkeypatch, schedulers) == ["n7"]
        body, authorization = schedulers.seen[-1]
        assert body["pods"] == [{"gpu": 0.5}]
        assert authorization == "Bearer secret"

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("status", "body", "delay"),
    [
        (200, {"starts_now": False, "node": None}, 0),
        (503, {"error": {"code": "standby"}}, 0),
        (403, {"error": {"code": "forbidden"}}, 0),
        (200, {"starts_now": True, "node": "late"}, 30),
        (200, {}, 0),
    ],
    ids=["no room", "no leader", "not allowed", "no answer in 2 s", "another answer"],
)
def test_no_preference(
    monkeypatch: pytest.MonkeyPatch, status: int, body: dict[str, Any], delay: float
):
    async def scenario() -> None:
        schedulers = Schedulers()
        schedulers.add(status, body, delay)
        assert await preferred(monkeypatch, schedulers) == []

    asyncio.run(scenario())


def test_a_profile_without_a_share_asks_nobody(monkeypatch: pytest.MonkeyPatch):
    async def scenario() -> None:
        schedulers = Schedulers()
        schedulers.add(200, {"starts_now": True, "node": "n7"})
        assert await preferred(monkeypatch, schedulers, None) == []
        assert schedulers.seen == []

    asyncio.run(scenario())


def test_overrides_of_profiles_are_options_of_kubespawner():
    for profile in example_values()["singleuser"]["profileList"]:
        assert set(profile["kubespawner_override"]) <= set(KubeSpawner.class_trait_names())


def test_names_are_those_of_the_chart():
    values = example_values()
    user = values["singleuser"]
    assert user["extraEnv"]["GPUSHARE_AGENT_SOCKET"] == names.SOCKET_FILE
    assert user["storage"]["extraVolumes"][0]["hostPath"]["path"] == names.SOCKET_DIRECTORY
    assert user["storage"]["extraVolumeMounts"][0] == {
        "name": "gpushare",
        "mountPath": names.SOCKET_DIRECTORY,
        "readOnly": True,
    }
    gpu = user["profileList"][1]["kubespawner_override"]
    assert gpu["node_selector"] == {names.MANAGED_LABEL: names.MANAGED_VALUE}
    assert names.GPU_RESOURCE not in yaml.safe_dump(values["singleuser"]["profileList"])
    host = f"{names.SCHEDULER_NAME}-0.{names.SCHEDULER_NAME}.{names.NAMESPACE}.svc"
    url = f"http://{host}:{names.SCHEDULER_PORT}"
    assert user["extraEnv"]["GPUSHARE_SCHEDULER"] == url
    assert values["hub"]["extraEnv"]["GPUSHARE_SCHEDULER"] == url
    [egress] = user["networkPolicy"]["egress"]
    assert egress["ports"] == [{"port": names.SCHEDULER_PORT}]
    labels = egress["to"][0]["podSelector"]["matchLabels"]
    assert labels == {
        names.NAME_LABEL: names.PART_OF,
        names.COMPONENT_LABEL: names.COMPONENT_SCHEDULER,
    }
