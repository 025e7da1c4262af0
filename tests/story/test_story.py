"""Two notebooks share a GPU and a third gets it: everything on one machine, with real servers,
kernels and processes.
"""

from __future__ import annotations

import pytest

from tests.story.front_end import eventually

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]
GIB = 1 << 30
FILL = """
from jupyter_gpushare import simgpu
b = simgpu.alloc('70GiB')
b.fill(3)
print(simgpu.device_uuid())
"""
CHECK = f"print(b.sum() == 3 * 70 * {GIB}, simgpu.device_uuid())"


@pytest.mark.parametrize("remote", [False, True], ids=["embedded", "remote"])
def test_two_notebooks_share_a_gpu_and_a_third_gets_it(start_server, remote):
    server = start_server(remote=remote)
    assert server.status()["simulated"]
    a, b = server.notebook("half", "a.ipynb"), server.notebook("half", "b.ipynb")

    # 1. planned on one GPU, running on two, each borrowing 30 GiB
    gpu_a, gpu_b = a.ok(FILL).splitlines()[-1], b.ok(FILL).splitlines()[-1]
    view_a, view_b = a.until("attached"), b.until("attached")
    assert view_a["planned_gpu"] == view_b["planned_gpu"]
    assert view_a["planned_gpu"] in (gpu_a, gpu_b)
    assert gpu_a != gpu_b
    eventually(
        lambda: [n.view["memory_mib"]["borrowed"] for n in (a, b)] == [30720, 30720],
        "both borrow 30 GiB",
    )
    eventually(lambda: "burst" in a.kinds(), "the event")

    # 2. a whole GPU is granted; the GPU with fewer bytes is evacuated; memory survives
    preview = a.server.rest("POST", "gpushare/api/what-if", {"gpu": 1, "project": "language"})
    assert (preview["starts_now"], preview["notice_ms"]) == (True, 0)
    pids, generations = (a.pid, b.pid), (view_a["generation"], view_b["generation"])
    c = server.notebook("whole", "c.ipynb")
    gpu_c = c.ok(
        "from jupyter_gpushare import simgpu\n"
        "big = simgpu.alloc('80GiB')\n"
        "print(simgpu.device_uuid())"
    ).splitlines()[-1]
    views = [a.view, b.view]
    assert c.view["state"] == "attached"
    assert gpu_c in (gpu_a, gpu_b)
    moved, stayed = (a, b) if gpu_c == gpu_a else (b, a)
    assert preview["gpus"] == [gpu_c]
    assert [(one["name"], one["memory_mib"]) for one in preview["affected"]] == [
        (moved.path, 70 * 1024)
    ]

    # 3. both halves on the other GPU: the moved one keeps its state, one message each, no kernel
    #    ended
    text = moved.ok(CHECK)
    assert text.splitlines()[-1] == f"True {gpu_b if moved is a else gpu_a}"
    eventually(lambda: "suspended" in moved.kinds(), "the event")
    eventually(lambda: {"moved", "resumed"} & set(moved.kinds()), "the event")
    assert (a.pid, b.pid) == pids
    assert [view["generation"] for view in (a.view, b.view)] != generations, views
    assert stayed.ok(CHECK).splitlines()[-1].startswith("True")
    assert not any(n.saw(state) for n in (a, b, c) for state in ("restarting", "dead"))

    # 4. C shuts down; both spread out and burst again
    c.shut_down()
    eventually(lambda: server.allocated() == 1.0, "C's GPU is free")
    more = "simgpu.alloc('5GiB').free(); print(simgpu.device_uuid())"
    eventually(
        lambda: len({a.ok(more).splitlines()[-1], b.ok(more).splitlines()[-1]}) == 2,
        "A and B on two GPUs again",
    )
    assert a.ok(CHECK).splitlines()[-1].startswith("True")
    assert b.ok(CHECK).splitlines()[-1].startswith("True")
    a.shut_down()
    b.shut_down()
    server.nothing_is_left()


def test_a_busy_borrower_gets_a_notice_and_its_cell_continues(server, notebook):
    a, b = notebook("half"), notebook("half")
    a.ok(FILL)
    b.ok(FILL)
    cells = [n.submit("simgpu.busy(14); print('done', b.sum() > 0)") for n in (a, b)]
    eventually(lambda: a.view["busy"] and b.view["busy"], "both are busy")
    preview = server.rest("POST", "gpushare/api/what-if", {"gpu": 1, "project": "language"})
    assert preview["starts_now"]
    assert preview["notice_ms"] > 0
    c = notebook("whole")
    waiting = c.submit("from jupyter_gpushare import simgpu; print(simgpu.device_uuid())")
    for n, cell in zip((a, b), cells, strict=True):
        assert n.collect(cell, 90).text.splitlines()[-1] == "done True"
    assert c.collect(waiting, 90).ok
    kinds = [n.kinds() for n in (a, b)]
    assert any(
        "notice" in k and k.index("notice") < k.index("suspended")
        for k in kinds
        if "suspended" in k
    ), kinds
