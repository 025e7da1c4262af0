"""Commands of kernelspecs that start an IPython kernel load `%gpu`; others stay unchanged."""

from __future__ import annotations

import pytest

from jupyter_gpushare.server_extension.provisioner import with_extension

EXT = ["--ext", "jupyter_gpushare"]
FILE = ["-f", "/run/kernel.json"]


@pytest.mark.parametrize(
    ("cmd", "started"),
    [
        (
            ["python", "-m", "ipykernel_launcher", *FILE],
            ["python", "-m", "ipykernel_launcher", *EXT, *FILE],
        ),
        (
            ["python", "-I", "-m", "ipykernel", *FILE, "--debug"],
            ["python", "-I", "-m", "ipykernel", *EXT, *FILE, "--debug"],
        ),
        (
            ["conda", "run", "-n", "e", "python", "-m", "ipykernel_launcher", *FILE],
            ["conda", "run", "-n", "e", "python", "-m", "ipykernel_launcher", *EXT, *FILE],
        ),
        (
            ["python", "/usr/lib/ipykernel_launcher.py", *FILE],
            ["python", "/usr/lib/ipykernel_launcher.py", *EXT, *FILE],
        ),
        (
            ["bash", "-c", "exec python -m ipykernel_launcher -f '/run/kernel.json'"],
            [
                "bash",
                "-c",
                "exec python -m ipykernel_launcher --ext jupyter_gpushare -f '/run/kernel.json'",
            ],
        ),
        (
            ["sh", "-c", '. env/bin/activate && python -m ipykernel "$@"', "-", *FILE],
            [
                "sh",
                "-c",
                '. env/bin/activate && python -m ipykernel --ext jupyter_gpushare "$@"',
                "-",
                *FILE,
            ],
        ),
    ],
)
def test_ipython_kernels_load_the_magics(cmd: list[str], started: list[str]) -> None:
    assert with_extension(cmd) == started


@pytest.mark.parametrize(
    "cmd",
    [
        ["ir", "--args", "/run/kernel.json"],
        ["python", "-m", "bash_kernel", *FILE],
        ["python", "-m", "ipykernel_launchers", *FILE],
        ["julia", "-e", "using IJulia; # not python -m ipykernel_launcherx", "/run/kernel.json"],
        ["/opt/ipykernel", *FILE],
        [],
    ],
)
def test_other_commands_stay_unchanged(cmd: list[str]) -> None:
    assert with_extension(cmd) == cmd
