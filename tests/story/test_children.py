"""GPU memory of processes that a notebook starts counts to the notebook."""

from __future__ import annotations

import pytest

from tests.story.front_end import eventually

pytestmark = pytest.mark.slow
WORKER = """
def hold(folder):
    import pathlib, time
    from jupyter_gpushare import simgpu
    buffer = simgpu.alloc('2GiB')
    while not pathlib.Path(folder, 'stop').exists(): time.sleep(0.05)
"""
STARTS = {
    "subprocess": "import subprocess, sys\n"
    "p = subprocess.Popen([sys.executable, '-c', 'import worker; worker.hold(\".\")'])",
    "multiprocessing": "import multiprocessing as mp, worker\n"
    "p = mp.get_context('spawn').Process(target=worker.hold, args=('.',)); p.start()",
    "joblib": "import joblib, threading, worker\n"
    "work = [joblib.delayed(worker.hold)('.')] * 2\n"
    "threading.Thread(target=lambda: joblib.Parallel(n_jobs=2)(work)).start()",
}


@pytest.mark.parametrize(("way", "mib"), [("subprocess", 2), ("multiprocessing", 2), ("joblib", 4)])
def test_memory_of_children_counts_to_their_kernel(server, notebook, tmp_path, way, mib):
    nb = notebook("half")
    (tmp_path / "worker.py").write_text(WORKER)
    nb.ok(f"import os, sys; os.chdir({str(tmp_path)!r}); sys.path.insert(0, '')")
    nb.ok(STARTS[way])
    eventually(lambda: nb.view["memory_mib"]["used"] == mib * 1024, "its memory")
    (tmp_path / "stop").touch()
    eventually(lambda: nb.view["memory_mib"]["used"] == 0, "the memory is free")
