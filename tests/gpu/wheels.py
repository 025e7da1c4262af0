"""`python -m tests.gpu.wheels DIRECTORY`: downloads the dependencies of `tests.gpu.measure` as
wheels, for a GPU machine without network access.

    python -m tests.gpu.wheels wheels --python 3.12 --without numpy    # here; about 30 MiB
    # on the GPU machine, in a copy of this tree:
    python3 -m pip install --no-index --no-deps --target /tmp/site wheels/*.whl
    PYTHONPATH=/tmp/site python3 -m tests.gpu.measure --budget 540

The measured frameworks (PyTorch, JAX, CuPy) are those installed on the machine.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Final

__all__ = ["main"]

ROOT: Final = Path(__file__).parents[2]
ALSO: Final = ("psutil", "websocket-client")
"""Dependencies of the part `two-notebooks`."""
GLIBC: Final = range(39, 16, -1)
"""pip compares platform tags literally, so each needs its own."""


def main() -> None:
    """Download to the directory, and build the wheel of this project there."""
    parser = argparse.ArgumentParser(description="Wheels for a GPU machine without network access.")
    parser.add_argument("folder", type=Path)
    parser.add_argument(
        "--python",
        default=f"{sys.version_info.major}.{sys.version_info.minor}",
        help="Python version of the GPU machine, such as 3.12",
    )
    parser.add_argument(
        "--without",
        action="append",
        default=[],
        metavar="NAME",
        help="a package that is installed there",
    )
    args = parser.parse_args()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    platforms = ["--platform", "manylinux2014_x86_64"]
    for minor in GLIBC:
        platforms += ["--platform", f"manylinux_2_{minor}_x86_64"]
    _pip(
        "download",
        "--only-binary=:all:",
        "--implementation",
        "cp",
        "--python-version",
        args.python,
        *platforms,
        "-d",
        args.folder,
        *project["dependencies"],
        *ALSO,
    )
    _pip("wheel", "--no-deps", "-w", args.folder, ROOT)
    unwanted = {_plain(name) for name in args.without}
    for path in sorted(args.folder.glob("*.whl")):
        if _plain(path.name.partition("-")[0]) in unwanted:
            path.unlink()
    found = list(args.folder.glob("*.whl"))
    mib = sum(path.stat().st_size for path in found) / (1 << 20)
    sys.stdout.write(f"{len(found)} wheels, {mib:.0f} MiB in {args.folder}\n")


def _pip(*words: object) -> None:
    subprocess.run([sys.executable, "-m", "pip", *map(str, words), "--quiet"], check=True)


def _plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


if __name__ == "__main__":
    main()
