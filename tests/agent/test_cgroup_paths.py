"""Where the cgroups of pods are for an agent in a container, which has a cgroup namespace of its
own, with real namespaces; and what the limits of a pod mean for saved memory.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from node_agent.system import cgroup_paths
from node_agent.system.host_memory import read_host, refusal
from node_agent.system.pods import pod_in_path
from tests.agent.pods import ROOT, FakePod, as_node_root, hierarchies, public_folder

GIB = 1024
POD = "kubepods/burstable/pod0f1e2d3c-4b5a-6978-8796-a5b4c3d2e1f0"
AGENT = "kubepods/besteffort/pod11111111-2222-3333-4444-555555555555"


@pytest.fixture
def node_dir() -> Iterator[Path]:
    with public_folder() as folder:
        yield folder


SEEN = """
import json, sys
from pathlib import Path
from node_agent.system.cgroup_paths import cgroup_directory, cgroup_path
path, root = cgroup_path(sys.argv[1], ""), Path(sys.argv[2])
print(json.dumps([cgroup_path("self", ""), path, str(cgroup_directory(path, root, ""))]))
"""


@as_node_root
@pytest.mark.skipif(not hierarchies(2), reason="this machine has no cgroup v2 hierarchy")
def test_the_cgroup_of_a_pod_is_found_from_a_cgroup_namespace(node_dir: Path):
    (root,) = hierarchies(2)
    with FakePod(node_dir, version=2) as agent, FakePod(node_dir, version=2) as user:
        command = agent.in_cgroup("unshare", "--cgroup", sys.executable, "-c", SEEN)
        done = subprocess.run(
            [*command, str(user.main.pid), str(root)],
            capture_output=True,
            check=True,
            cwd=ROOT,
            env=os.environ | {"PYTHONPATH": str(ROOT)},
        )
        own, path, found = json.loads(done.stdout)
        assert own == "/"
        assert path.startswith("/../..")
        assert pod_in_path(path) == user.uid
        assert [Path(found)] == user.cgroups


def node(folder: Path, own: str, path: str, monkeypatch: pytest.MonkeyPatch):
    """What an agent reads of a process with this path in a pod that may have 16 GiB."""
    proc, cgroups = folder / "proc", folder / "cgroup"
    monkeypatch.setattr(os, "getpid", lambda: 4711)
    cgroup_paths._namespace_start.cache_clear()
    files = {
        "proc/meminfo": "MemTotal: 104857600 kB\nMemAvailable: 62914560 kB\n",
        "proc/self/cgroup": f"0::{own}\n",
        "proc/77/cgroup": f"0::{path}\n",
        "cgroup/cgroup.procs": "1\n",
        f"cgroup/{AGENT}/a/cgroup.procs": "4711\n",
        f"cgroup/{POD}/memory.max": f"{16 << 30}\n",
        f"cgroup/{POD}/memory.current": f"{4 << 30}\n",
        f"cgroup/{POD}/memory.stat": "inactive_file 0\n",
        f"cgroup/{POD}/c/memory.max": "max\n",
    }
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return read_host([77], proc, cgroups)


@pytest.mark.parametrize(
    ("own", "path"),
    [("/", f"/../../../{POD.removeprefix('kubepods/')}/c"), (f"/{AGENT}/a", f"/{POD}/c")],
    ids=["cgroup namespace", "the host's paths"],
)
def test_saved_memory_is_bounded_by_the_limit_of_the_pod(tmp_path, monkeypatch, own, path):
    host = node(tmp_path, own, path, monkeypatch)
    assert [group.room() for group in host.groups] == [12 * GIB]
    assert refusal(12 * GIB, 0, 0, None, host) == ""
    assert "its container has not enough memory" in refusal(13 * GIB, 0, 0, None, host)


def test_nothing_is_saved_while_the_limit_of_its_pod_cannot_be_seen(tmp_path, monkeypatch):
    """Only the agent's own cgroup is mounted: the pod might be killed for its saved memory."""
    host = node(tmp_path, "/", f"/../../../../../../{POD}/c", monkeypatch)
    assert host.hidden
    assert "needs the host's /sys/fs/cgroup" in refusal(1, 0, 0, None, host)
