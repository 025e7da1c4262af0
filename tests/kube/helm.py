"""The chart of jupyter_gpushare/kube/chart, rendered and installed by Helm."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any, Final

import yaml

from tests.kube.assets import program
from tests.kube.images import PAUSE_IMAGE

__all__ = ["CHART", "RELEASE", "Helm", "HelmFailed"]

CHART: Final = Path(__file__).parents[2] / "jupyter_gpushare/kube/chart"
RELEASE: Final = "gpushare"
Values = dict[str, Any]


class HelmFailed(Exception):
    """Helm ended with an error. `str()` is its output."""


class Helm:
    """Commands of Helm, with a home of its own."""

    def __init__(self, folder: Path, kubeconfig: Path | None = None) -> None:
        self.folder = folder
        self._environment = {
            "HOME": str(folder),
            "PATH": os.environ.get("PATH", ""),
            "KUBECONFIG": str(kubeconfig or folder / "no-cluster"),
        }

    def render(self, values: Values | None = None, namespace: str = RELEASE) -> list[Values]:
        """The objects of the chart. Raises HelmFailed."""
        text = self.run("template", RELEASE, CHART, "-n", namespace, values=values)
        return [item for item in yaml.safe_load_all(text) if item]

    def lint(self, values: Values | None = None) -> str:
        return self.run("lint", "--strict", CHART, values=values)

    def install(self, values: Values, namespace: str = RELEASE) -> None:
        """Installs or upgrades, without waiting for pods."""
        command = ("upgrade", "--install", RELEASE, CHART, "-n", namespace, "--create-namespace")
        self.run(*command, values=values)

    def uninstall(self, namespace: str = RELEASE) -> None:
        self.run("uninstall", RELEASE, "-n", namespace, "--wait=false", "--ignore-not-found")

    def run(self, *command: str | Path, values: Values | None = None) -> str:
        helm = program("helm")
        assert helm, "helm is missing: `make kube-assets`"
        options: list[str | Path] = []
        if values is not None:
            file = self.folder / "values.yaml"
            file.write_text(yaml.safe_dump(values))
            options = ["-f", file]
        done = subprocess.run(
            [helm, *command, *options],
            env=self._environment,
            check=False,
            capture_output=True,
            text=True,
        )
        if done.returncode != 0:
            raise HelmFailed(done.stdout + done.stderr)
        return done.stdout


def slots_image() -> Values:
    """Values of the slots' image that the test cluster has."""
    repository, tag = PAUSE_IMAGE.rsplit(":", 1)
    return {"image": {"repository": repository, "tag": tag, "pullPolicy": "Never"}}
