"""The extension in a real server on a machine without GPUs: Jupyter works, the status says why."""

from __future__ import annotations

import asyncio
import itertools
import json
import re

import pynvml
import pytest
from jupyter_client.provisioning.factory import KernelProvisionerFactory
from tornado.httpclient import HTTPClientError

from jupyter_gpushare.kernel.documentation import page_of_codes
from jupyter_gpushare.messages import Pools
from jupyter_gpushare.routes import JUPYTER_ROUTES
from jupyter_gpushare.server_extension.handlers.api import handlers
from jupyter_gpushare.server_extension.handlers.base import SETTING
from tests.server_extension.fake_transport import FakeTransport

pytest_plugins = ("pytest_jupyter.jupyter_server",)
pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def no_driver(monkeypatch):
    """Not even where an earlier test has loaded its driver: a process finds it again by name."""

    def missing():
        raise pynvml.NVMLError(pynvml.NVML_ERROR_LIBRARY_NOT_FOUND)

    monkeypatch.setattr(pynvml, "nvmlLib", None)
    monkeypatch.setattr(pynvml, "_LoadNvmlLibrary", missing)


@pytest.fixture
def jp_server_config(tmp_path):
    KernelProvisionerFactory.clear_instance()
    return {
        "ServerApp": {
            "jpserver_extensions": {"jupyter_gpushare": True},
            "allow_unauthenticated_access": False,
        },
        "GpuShareExtension": {"state_dir": str(tmp_path / "state")},
    }


@pytest.fixture
def extension(jp_serverapp):
    return jp_serverapp.extension_manager.extension_points["jupyter_gpushare"].app


async def refused(jp_fetch, *path, **options):
    with pytest.raises(HTTPClientError) as error:
        await jp_fetch("gpushare", "api", *path, **options)
    return error.value.code, json.loads(error.value.response.body)["error"]


async def test_the_status_without_gpus(jp_fetch):
    status = json.loads((await jp_fetch("gpushare", "api", "status")).body)
    assert (status["mode"], status["simulated"], status["kernels"]) == ("embedded", False, [])
    assert not status["scheduler"]["reachable"]


async def test_every_route_needs_a_token(jp_fetch):
    for path in (["status"], ["queues"], ["kernels", "k"], ["nothing"]):
        with pytest.raises(HTTPClientError) as error:
            await jp_fetch("gpushare", "api", *path, headers={"Authorization": "token wrong"})
        assert error.value.code in (401, 403)
        assert json.loads(error.value.response.body)["error"]["code"] == "logged-out"


async def test_the_stream_needs_a_token_too(jp_ws_fetch):
    with pytest.raises(HTTPClientError) as error:
        await jp_ws_fetch("gpushare", "api", "stream", headers={"Authorization": "token wrong"})
    assert error.value.code == 403


async def test_a_kernel_does_not_wait_where_no_agent_can_run(jp_serverapp, jp_fetch, monkeypatch):
    """A kernel starts at once, however long it may wait for an agent elsewhere."""
    monkeypatch.setattr("jupyter_gpushare.server_extension.kernels.launches.LAUNCH_S", 3600.0)
    startup = jp_serverapp.web_app.settings[SETTING].startup
    # Set by the start of the embedded services, which does not happen in this test.
    startup.problem = "no NVIDIA driver was found on this machine"
    startup.finished.set()
    kernel = json.loads((await jp_fetch("api", "kernels", method="POST", body="{}")).body)
    status = json.loads((await jp_fetch("gpushare", "api", "kernels", kernel["id"])).body)
    assert status["state"] == "detached"
    assert (await jp_fetch("api", "kernels", kernel["id"], method="DELETE")).code == 204


async def swept(service, monkeypatch, times=3):
    """Returns after so many sweeps, which have no pauses."""
    monkeypatch.setattr("jupyter_gpushare.server_extension.services.kernel_sweep.SWEEP_S", 0)
    counted, enough = itertools.count(1), asyncio.Event()
    monkeypatch.setattr(
        service.kernels, "sample", lambda: next(counted) > times and enough.set(), raising=True
    )
    sweep = asyncio.create_task(service._sweep.run())
    await enough.wait()
    sweep.cancel()


async def test_a_kernel_that_starts_slowly_is_not_taken_for_ended(
    jp_serverapp, jp_fetch, monkeypatch
):
    """It waits for the embedded services, or for the processor."""
    service = jp_serverapp.web_app.settings[SETTING]
    launches = service._launches
    monkeypatch.setattr("jupyter_gpushare.server_extension.kernels.launches.START_S", 3600.0)
    service.startup.finished.clear()
    start = jp_fetch("api", "kernels", method="POST", body="{}")
    while not launches._launched:
        await asyncio.sleep(0.01)
    await swept(service, monkeypatch)
    service.startup.problem = "no NVIDIA driver was found on this machine"
    service.startup.finished.set()
    kernel = json.loads((await start).body)
    assert kernel["id"] in launches
    code, error = await refused(
        jp_fetch, "kernels", kernel["id"], method="POST", body=json.dumps({"gpu": 0.5})
    )
    assert (code, error["message"]) == (503, service.startup.problem)
    assert (await jp_fetch("api", "kernels", kernel["id"], method="DELETE")).code == 204


@pytest.mark.parametrize(
    ("path", "token", "anchor"),
    [
        ("kernels/nope", None, "not-found"),
        ("nothing", None, "not-found"),
        ("status", "token wrong", "http-status"),
    ],
)
async def test_errors_lead_to_their_explanation(jp_fetch, path, token, anchor):
    headers = {} if token is None else {"Authorization": token}
    with pytest.raises(HTTPClientError) as error:
        await jp_fetch("gpushare", "api", *path.split("/"), headers=headers)
    link = error.value.response.headers["Link"]
    assert link == f'<{page_of_codes()}#{anchor}>; rel="help"'


async def test_errors_have_one_shape(jp_fetch):
    assert await refused(jp_fetch, "kernels", "nope") == (
        404,
        {"code": "not-found", "message": "kernel nope does not exist"},
    )
    assert (await refused(jp_fetch, "nothing", "here"))[0] == 404
    code, error = await refused(jp_fetch, "what-if", method="POST", body="{")
    assert code == 400, error
    code, error = await refused(jp_fetch, "what-if", method="POST", body=b'{"preset": "\xff"}')
    assert (code, error["message"]) == (400, "the body is not valid UTF-8")
    code, error = await refused(jp_fetch, "what-if", method="POST", body='{"gpu": -1}')
    assert (code, error["field"]) == (400, "gpu")
    asked = {"method": "POST", "body": '{"gpu": 1}', "params": {"kernel_id": "nope"}}
    assert await refused(jp_fetch, "what-if", **asked) == (
        404,
        {"code": "not-found", "message": "kernel nope does not exist"},
    )
    code, error = await refused(jp_fetch, "queues", params={"format": "xml"})
    assert (code, error["field"]) == (400, "format")
    assert (await refused(jp_fetch, "queues"))[0] == 503
    code, error = await refused(jp_fetch, "nodes", "n0", "dance", method="POST", body="{}")
    assert (code, error["field"]) == (404, "action")
    assert (await refused(jp_fetch, "nodes", "n0", "cordon", method="POST", body="{}"))[0] == 503
    assert (await refused(jp_fetch, "workloads", "w", method="DELETE"))[0] == 503
    assert (await refused(jp_fetch, "history", "nodes"))[0] == 503


async def test_the_stream_begins_with_the_complete_state_and_resumes(jp_serverapp, jp_ws_fetch):
    stream = await jp_ws_fetch("gpushare", "api", "stream")
    first = json.loads(await stream.read_message())
    assert (first["type"], first["status"]["mode"]) == ("state", "embedded")
    jp_serverapp.web_app.settings[SETTING].pages.publish(
        lambda revision: {"type": "kernel_gone", "revision": revision, "kernel_id": "x"}
    )
    seen = json.loads(await stream.read_message())
    while seen["type"] != "kernel_gone":
        seen = json.loads(await stream.read_message())
    stream.close()
    again = await jp_ws_fetch("gpushare", "api", "stream", params={"since": str(first["revision"])})
    frames = [json.loads(await again.read_message())]
    while frames[-1] != seen:
        frames.append(json.loads(await again.read_message()))
    assert [frame["type"] for frame in frames if frame["type"] == "state"] == []
    again.close()


async def test_the_history_of_a_kernel_is_a_table(jp_fetch, echo_kernel_spec):
    kernel = json.loads(
        (await jp_fetch("api", "kernels", method="POST", body=json.dumps({"name": "echo"}))).body
    )
    history = ("gpushare", "api", "kernels", kernel["id"], "history")
    whole = json.loads((await jp_fetch(*history, params={"minutes": "5"})).body)
    assert whole["kernel_id"] == kernel["id"]
    assert (whole["samples"][-1]["state"], whole["samples"][-1]["used_mib"]) == ("detached", 0)
    table = (
        (await jp_fetch(*history, params={"format": "csv", "columns": "used_mib,state"}))
        .body.decode()
        .splitlines()
    )
    assert (table[0], table[-1]) == ("used_mib,state", "0,detached")
    code, error = await refused(
        jp_fetch, "kernels", kernel["id"], "history", params={"minutes": "soon"}
    )
    assert (code, error["field"]) == (400, "minutes")
    assert (await refused(jp_fetch, "kernels", "nope", "history"))[0] == 404
    code, error = await refused(jp_fetch, "history", "queues", params={"minutes": "0"})
    assert (code, error["field"]) == (400, "minutes")


async def test_a_kernel_of_another_language_works(jp_fetch, jp_serverapp, echo_kernel_spec):
    kernel = json.loads(
        (await jp_fetch("api", "kernels", method="POST", body=json.dumps({"name": "echo"}))).body
    )
    provisioner = jp_serverapp.kernel_manager.get_kernel(kernel["id"]).provisioner
    assert type(provisioner).__name__ == "GpuShareProvisioner"
    seen = json.loads((await jp_fetch("gpushare", "api", "kernels", kernel["id"])).body)
    assert (seen["state"], seen["request"]["gpu"]) == ("detached", None)
    await jp_fetch("api", "kernels", kernel["id"], method="DELETE")
    assert (await refused(jp_fetch, "kernels", kernel["id"]))[0] == 404


async def test_a_table_as_csv_has_the_content_type_of_csv(jp_fetch, extension):
    extension.embedded.use_scheduler(FakeTransport(lambda verb, path, body: Pools(pools=[])))
    answer = await jp_fetch(
        "gpushare", "api", "pools", params={"format": "csv", "columns": "name, gpus"}
    )
    assert (answer.headers["Content-Type"], answer.body) == (
        "text/csv; charset=utf-8",
        b"name,gpus\n",
    )


async def test_simulated_gpus_are_labelled_before_the_agent_connects(
    jp_configurable_serverapp, tmp_path
):
    KernelProvisionerFactory.clear_instance()
    config = {"GpuShareExtension": {"simulate": "2", "state_dir": str(tmp_path)}}
    app = jp_configurable_serverapp(
        config={"ServerApp": {"jpserver_extensions": {"jupyter_gpushare": True}}, **config}
    )
    assert app.web_app.settings[SETTING].status().simulated


async def test_a_kernel_that_failed_to_start_does_not_keep_the_server_alive(
    jp_fetch, jp_serverapp, jp_data_dir
):
    spec = jp_data_dir / "kernels" / "negative"
    spec.mkdir(parents=True)
    provisioner = {"provisioner_name": "gpushare-provisioner", "config": {"gpu": -1}}
    content = {
        "argv": ["false"],
        "display_name": "x",
        "language": "x",
        "metadata": {"kernel_provisioner": provisioner},
    }
    (spec / "kernel.json").write_text(json.dumps(content))
    with pytest.raises(HTTPClientError) as error:
        await jp_fetch("api", "kernels", method="POST", body=json.dumps({"name": "negative"}))
    assert (error.value.code, "gpu must not be negative" in error.value.response.body.decode()) == (
        400,
        True,
    )
    # If this fails, Jupyter cleans up itself, and `forget_failed_starts` is not needed any more.
    assert jp_serverapp.kernel_manager._pending_kernels
    await jp_serverapp.cleanup_extensions()
    assert not jp_serverapp.kernel_manager._pending_kernels
    await jp_serverapp.cleanup_kernels()


async def test_a_kernel_that_failed_to_start_is_forgotten(
    jp_fetch, jp_serverapp, jp_data_dir, monkeypatch
):
    service = jp_serverapp.web_app.settings[SETTING]
    service.startup.problem = "no NVIDIA driver was found on this machine"
    service.startup.finished.set()
    spec = jp_data_dir / "kernels" / "broken"
    spec.mkdir(parents=True)
    content = {"argv": ["/nowhere/kernel"], "display_name": "x", "language": "x"}
    (spec / "kernel.json").write_text(json.dumps(content))
    with pytest.raises(HTTPClientError) as error:
        await jp_fetch("api", "kernels", method="POST", body=json.dumps({"name": "broken"}))
    assert error.value.code == 500
    assert service._launches._launched
    await swept(service, monkeypatch)
    assert not service._launches._launched
    await jp_serverapp.cleanup_extensions()
    await jp_serverapp.cleanup_kernels()


async def test_the_default_provisioner_can_stay_unchanged(jp_configurable_serverapp, tmp_path):
    KernelProvisionerFactory.clear_instance()
    config = {"GpuShareExtension": {"make_default_provisioner": False, "state_dir": str(tmp_path)}}
    app = jp_configurable_serverapp(
        config={"ServerApp": {"jpserver_extensions": {"jupyter_gpushare": True}}, **config}
    )
    assert "default_provisioner_name" not in app.config.KernelProvisionerFactory


def test_every_route_of_the_table_has_its_handler():
    table = [
        re.compile(pattern + "$")
        for pattern, handler in handlers("/")
        if handler.__name__ != "NotFoundHandler"
    ]
    for route in JUPYTER_ROUTES:
        path = route.path.replace("{kernel_id}", "k").replace("{action}", "pin")
        assert any(pattern.match(path) for pattern in table), route.path
