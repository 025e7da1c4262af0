"""A tool plays the part of the Jupyter server for the services."""

from __future__ import annotations

import inspect

from jupyter_gpushare.server_extension.clients.jupyter_server import JupyterServer
from jupyter_gpushare.server_extension.headless.kernels import ToolKernels


def test_it_answers_every_call_of_the_services_itself():
    """It has no server: what it inherited would fail in the background of every tool."""
    calls = {name for name, _ in inspect.getmembers(JupyterServer, inspect.isfunction)}
    public = {name for name in calls if not name.startswith("_")}
    assert public <= set(vars(ToolKernels))
