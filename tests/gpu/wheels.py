"""`python -m tests.gpu.wheels FOLDER`: what `tests.gpu.measure` needs on a GPU machine that can
fetch nothing, as wheels.

    python -m tests.gpu.wheels wheels --python 3.12 --without numpy          # here; some 30 MiB
    python3 -m pip install --no-index --no-deps --target /tmp/site wheels/*.whl   # there, from a
    copy of this tree
    PYTHONPATH=/tmp/site python3 -m tests.gpu.measure --budget 540

The frameworks that are measured are the machine's own: PyTorch, JAX and CuPy are not among them.
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
"""What the story's front end is made of."""
GLIBC: Final = range(39, 16, -1)
"""pip takes a platform tag at its word: one for each."""


def main() -> None:
    """Downloads into FOLDER, and builds this project's own wheel there."""
    parser = argparse.ArgumentParser(description="Wheels for a GPU machine that can fetch nothing.")
    parser.add_argument("folder", type=Path)
    parser.add_argument(
        "--python",
        default=f"{sys.version_info.major}.{sys.version_info.minor}",
        help="of the GPU machine, such as 3.12",
    )
    parser.add_argument(
        "--without", action="append", default=[], metavar="NAME", help="it is there already"
    )
    args = parser.parse_args()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    platforms = [
        word for minor in GLIBC for word in ("--platform", f"manylinux_2_{minor}_x86_64")
    ] + ["--platform", "manylinux2014_x86_64"]
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
    sys.stdout.write(
        f"{len(found)} wheels, {sum(path.stat().st_size for path in found) / (1 << 20):.0f} MiB in {args.folder}\n"
    )


def _pip(*words: object) -> None:
    subprocess.run([sys.executable, "-m", "pip", *map(str, words), "--quiet"], check=True)


def _plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


if __name__ == "__main__":
    main()
