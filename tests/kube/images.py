"""Container images without a registry: an empty root file system, and one static program.

A container takes Python and this repository from the machine: `host_mounts` are read-only hostPath
volumes of /usr, the Python installation, the virtual environment and the working tree.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any, Final

__all__ = ["HOST_IMAGE", "PAUSE_IMAGE", "PYTHON", "host_mounts", "host_pod", "image_archive"]

HOST_IMAGE: Final = "localhost/gpushare-test/host:1"
PAUSE_IMAGE: Final = "localhost/gpushare-test/pause:1"
PYTHON: Final = sys.executable
ROOT: Final = Path(__file__).parents[2]
ENVIRONMENT: Final = {
    "HOME": "/home/jovyan",
    "PATH": f"{sys.prefix}/bin:/usr/bin:/bin",
    "PYTHONDONTWRITEBYTECODE": "1",
    "PYTHONPATH": str(ROOT),
}
FOLDERS: Final = ("dev", "etc", "home", "proc", "run", "sys", "usr", "var")
MERGED_USR: Final = ("bin", "lib", "lib64", "sbin")
"""Links into /usr, as on the machine itself."""
FILES: Final = {
    "etc/passwd": "root:x:0:0::/root:/bin/sh\njovyan:x:1000:100::/home/jovyan:/bin/bash\n",
    "etc/group": "root:x:0:\nusers:x:100:\n",
    "etc/nsswitch.conf": "hosts: files dns\n",
}


def image_archive(folder: Path) -> Path:
    """A tar of both images, for `ctr images import`."""
    pause = folder / "pause"
    source = Path(__file__).with_name("pause.c")
    subprocess.run(["cc", "-static", "-Os", "-o", pause, source], check=True)
    archive = folder / "images.tar"
    manifest: list[dict[str, Any]] = []
    with tarfile.open(archive, "w") as tar:
        for name, command in ((PAUSE_IMAGE, ["/pause"]), (HOST_IMAGE, [])):
            layer = _layer(pause.read_bytes())
            digest = hashlib.sha256(layer).hexdigest()
            config = _config(digest, command)
            config_name = f"{hashlib.sha256(config).hexdigest()}.json"
            layer_name = f"{digest}-{len(manifest)}.tar"
            manifest.append({"Config": config_name, "RepoTags": [name], "Layers": [layer_name]})
            _add(tar, config_name, config)
            _add(tar, layer_name, layer)
        _add(tar, "manifest.json", json.dumps(manifest).encode())
    return archive


def host_mounts() -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """(`volumes`, `volumeMounts`) of a container with this Python, below the same paths."""
    folders = {Path("/usr"), Path(sys.base_prefix), Path(sys.prefix).resolve(), ROOT.resolve()}
    kept = [one for one in folders if not any(o in one.parents for o in folders)]
    link = Path(sys.prefix)
    if link.resolve() != link and not any(o in link.parents for o in kept):
        kept.append(link)
    volumes, mounts = [], []
    for number, path in enumerate(sorted(kept)):
        name = f"host-{number}"
        volumes.append({"name": name, "hostPath": {"path": os.fspath(path.resolve())}})
        mounts.append({"name": name, "mountPath": os.fspath(path), "readOnly": True})
    return volumes, mounts


def host_pod(name: str, command: list[str], *, uid: int = 1000, **labels: str) -> dict[str, Any]:
    """A pod with this Python and this repository."""
    volumes, mounts = host_mounts()
    container = {
        "name": "main",
        "image": HOST_IMAGE,
        "imagePullPolicy": "Never",
        "command": command,
        "env": [{"name": key, "value": value} for key, value in ENVIRONMENT.items()],
        "volumeMounts": mounts,
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": labels},
        "spec": {
            "securityContext": {"runAsUser": uid, "runAsGroup": 100},
            "terminationGracePeriodSeconds": 2,
            "volumes": volumes,
            "containers": [container],
        },
    }


def _layer(pause: bytes) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for name in FOLDERS:
            _folder(tar, name, 0o755)
        _folder(tar, "tmp", 0o1777)
        _folder(tar, "home/jovyan", 0o777)
        for name in MERGED_USR:
            link = tarfile.TarInfo(name)
            link.type, link.linkname = tarfile.SYMTYPE, f"usr/{name}"
            tar.addfile(link)
        for name, text in FILES.items():
            _add(tar, name, text.encode())
        _add(tar, "pause", pause, mode=0o755)
    return buffer.getvalue()


def _config(digest: str, command: list[str]) -> bytes:
    config = {
        "architecture": os.uname().machine.replace("x86_64", "amd64").replace("aarch64", "arm64"),
        "os": "linux",
        "config": {"Cmd": command, "Env": ["PATH=/usr/local/sbin:/usr/local/bin:/usr/bin:/bin"]},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}"]},
        "history": [{}],
    }
    return json.dumps(config).encode()


def _folder(tar: tarfile.TarFile, name: str, mode: int) -> None:
    info = tarfile.TarInfo(name)
    info.type, info.mode = tarfile.DIRTYPE, mode
    tar.addfile(info)


def _add(tar: tarfile.TarFile, name: str, content: bytes, mode: int = 0o644) -> None:
    info = tarfile.TarInfo(name)
    info.size, info.mode = len(content), mode
    tar.addfile(info, io.BytesIO(content))
