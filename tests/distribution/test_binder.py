"""What Binder's image would open is there. Its steps as a whole need a download of the front end's
packages, and are run by hand (docs/contributing/releases.md).
"""

from __future__ import annotations

import json
import re
import subprocess

from jupyter_gpushare.server_extension.extension import GpuShareExtension
from tests.distribution.builds import ROOT

POST_BUILD = ROOT / "binder/postBuild"


def configuration() -> dict[str, dict[str, str]]:
    """What postBuild writes for the server."""
    found = re.search(r"(?s)<<'JSON'\n(.*?)\nJSON\n", POST_BUILD.read_text())
    assert found is not None
    return json.loads(found[1])


def test_the_steps_are_a_program():
    assert POST_BUILD.stat().st_mode & 0o111
    subprocess.run(["bash", "-n", POST_BUILD], check=True)


def test_the_server_simulates_gpus_and_opens_the_tutorial():
    given = configuration()
    assert GpuShareExtension(**given["GpuShareExtension"]).simulate == "A100:2"
    opened = given["LabApp"]["default_url"].removeprefix("/lab/tree/")
    assert (ROOT / opened).is_file()
    badge = f"urlpath=lab/tree/{opened})"
    assert badge in (ROOT / "README.md").read_text()
