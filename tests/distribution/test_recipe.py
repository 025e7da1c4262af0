"""The conda recipe asks for what the wheel asks for."""

from __future__ import annotations

import re
import tomllib

import yaml
from packaging.requirements import Requirement

from tests.distribution.builds import ROOT

RECIPE = ROOT / "docs/packaging/recipe/recipe.yaml"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
OTHER_PLACES = {"python", "pip"}


def outputs() -> list[dict]:
    return yaml.safe_load(RECIPE.read_text())["outputs"]


def of_pip(requirements: list[str]) -> set[tuple[str, str]]:
    """(name, versions), as both write them."""
    parsed = [Requirement(one) for one in requirements]
    return {
        (one.name.replace("-", "_"), ",".join(sorted(map(str, one.specifier)))) for one in parsed
    }


def of_conda(requirements: list[str]) -> set[tuple[str, str]]:
    plain = [one for one in requirements if not one.startswith("${{")]
    named = [one for one in plain if re.split(r"[ <>=]", one)[0] not in OTHER_PLACES]
    return of_pip([one.replace(" ", "", 1) for one in named])


def test_the_base_package_requires_what_the_wheel_requires():
    base = outputs()[0]["requirements"]
    assert of_conda(base["run"]) == of_pip(PROJECT["project"]["dependencies"])
    assert of_conda(base["host"]) == of_pip(PROJECT["build-system"]["requires"])


def test_the_whole_package_adds_the_scheduler_and_widgets():
    extras = PROJECT["project"]["optional-dependencies"]
    assert of_conda(outputs()[1]["requirements"]["run"]) == of_pip(
        [*extras["scheduler"], *extras["widgets"]]
    )
