"""The story with the fake NVIDIA driver on a real cluster: memory in one container is found, saved
and restored by the agent in another one.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator

import pytest

from tests.fake_driver.fake_gpu_machine import GIB, FakeGpuMachine
from tests.kube.assets import missing
from tests.kube.audit import assert_only_granted
from tests.kube.driver_lab import DriverLab
from tests.kube.helm import Helm
from tests.kube.lab import GPUS
from tests.kube.node import OneNodeCluster
from tests.story.fake_driver_server import GPU
from tests.story.front_end import Notebook, eventually
from tests.story.hub_process import Person

pytestmark = pytest.mark.timeout(600)
MEMORY = 8 * GIB
WRITE = GPU + "import os\np = g.alloc({size})\ng.write(p, b'{text}')\nprint(os.getuid())"
READ = "print(g.read(p, {length}).decode())"


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory, helm: Helm) -> Iterator[DriverLab]:
    """A cluster of its own. `helm` is a reason to skip."""
    if reason := missing(node=True):
        pytest.skip(reason)
    with contextlib.ExitStack() as stack:
        machine = stack.enter_context(FakeGpuMachine(gpus=GPUS, memory=MEMORY))
        cluster = OneNodeCluster(tmp_path_factory.mktemp("driver"))
        stack.callback(cluster.stop)
        made = DriverLab(cluster.start(), machine)
        stack.callback(lambda: sys.stdout.write(made.logs()))  # shown when a test fails
        yield made.start()
        made.stop()
        assert_only_granted(cluster.control_plane)


def writing(person: Person, gpu: float, text: str) -> Notebook:
    """A notebook with a text in the memory of its GPU."""
    notebook = person.notebook("python3", f"{text}.ipynb")
    path = f"gpushare/api/kernels/{notebook.kernel_id}"
    person.rest("POST", path, {"gpu": gpu})
    notebook.until("attached", within=120)
    assert notebook.ok(WRITE.format(size=2 * GIB, text=text)).strip() == "1000"
    return notebook


def read(notebook: Notebook, text: str) -> str:
    return notebook.ok(READ.format(length=len(text))).strip()


def act(person: Person, notebook: Notebook, action: str) -> None:
    person.rest("POST", f"gpushare/api/kernels/{notebook.kernel_id}/actions/{action}", {})


def test_memory_of_a_pod_is_found_saved_and_restored(lab: DriverLab):
    alice, bob = lab.user("alice"), lab.user("bob")
    hers, his = writing(alice, 0.5, "hers"), writing(bob, 0.5, "his")
    eventually(lambda: hers.view["memory_mib"]["used"] >= 2048, "the agent measures her memory", 60)
    assert sum(gpu["foreign_mib"] for gpu in lab.node()["devices"]) == 0
    act(alice, hers, "suspend")
    eventually(lambda: hers.view["state"] == "suspended", "her memory is saved", 120)
    assert read(his, "his") == "his", "his kernel runs on"
    act(alice, hers, "resume")
    hers.until("attached", within=120)
    assert read(hers, "hers") == "hers"
    for notebook in (hers, his):
        notebook.shut_down()
    eventually(lambda: not lab.leases(), "no lease is left", 60)
