"""Compiles the fake driver once per driver version and machine: a directory with libcuda.so.1,
libnvidia-ml.so.1 and libfakedriver.so.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Final

__all__ = ["libraries"]

HERE: Final = Path(__file__).parent
PARTS: Final = {
    "cuda.c": "libcuda.so.1",
    "nvml.c": "libnvidia-ml.so.1",
    "control.c": "libfakedriver.so",
}
FLAGS: Final = [
    "-std=gnu11",
    "-O1",
    "-g",
    "-Wall",
    "-Wextra",
    "-Werror",
    "-fPIC",
    "-shared",
    "-pthread",
]


def libraries(driver: int = 580) -> Path:
    """The directory for LD_LIBRARY_PATH; `driver` (major version) determines which symbols exist.
    Built again after a change of the sources.
    """
    sources = sorted(HERE.glob("*.[ch]"))
    text = b"".join(path.read_bytes() for path in sources) + f"{driver} {FLAGS}".encode()
    digest = hashlib.sha256(text).hexdigest()[:16]
    folder = Path(tempfile.gettempdir()) / f"gpushare-fake-driver-{os.getuid()}-{digest}"
    if not folder.is_dir():
        fresh = Path(tempfile.mkdtemp(prefix="gpushare-fake-driver-new-"))
        for source, library in PARTS.items():
            _compile(HERE / source, fresh / library, driver)
        try:
            fresh.rename(folder)
        except OSError:  # another process was faster
            shutil.rmtree(fresh)
    return folder


def _compile(source: Path, target: Path, driver: int) -> None:
    soname = f"-Wl,-soname,{target.name}"
    done = subprocess.run(
        ["cc", *FLAGS, f"-DFAKE_DRIVER={driver}", soname, "-o", target, source],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"{source.name} does not compile:\n{done.stderr}")
