"""The request for a workload that runs a command, from options of the command line."""

from __future__ import annotations

import os
import secrets
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from jupyter_gpushare import messages as m
from jupyter_gpushare.core.model.errors import InvalidInput

__all__ = ["command_request"]

PASSED_ON: Final = (
    "PATH",
    "LANG",
    "LC_ALL",
    "PYTHONPATH",
    "LD_LIBRARY_PATH",
    "VIRTUAL_ENV",
    "CONDA_PREFIX",
    "CONDA_DEFAULT_ENV",
    "TZ",
)
"""Variables that a command inherits by default, for finding programs. Others may have secrets, and
the scheduler stores them.
"""


def command_request(
    argv: Sequence[str],
    *,
    kind: str,
    pod: m.PodRequest,
    pods: int = 1,
    min_pods: int | None = None,
    name: str | None,
    project: str | None,
    priority: str,
    pools: str | None,
    chdir: str | None,
    variables: Sequence[str],
    queue_anyway: bool,
) -> m.WorkloadRequest:
    """`kind`: beginning of the id. `pod`: each of the pods, apart from its name.

    Raises InvalidInput: a variable without a value is not set.
    """
    return m.WorkloadRequest(
        id=f"{kind}-{secrets.token_hex(4)}",
        name=name or " ".join(argv)[:80],
        project=project,
        pods=[
            m.PodRequest(
                name=str(i), gpu=pod.gpu, gpu_memory=pod.gpu_memory, cpu=pod.cpu, memory=pod.memory
            )
            for i in range(pods)
        ],
        priority_class=int(priority) if priority.isdecimal() else priority,
        min_pods=min_pods,
        node_pools=[pool.strip() for pool in pools.split(",")] if pools else [],
        command=m.CommandRequest(
            argv=list(argv),
            env=_environment(variables),
            cwd=str(Path(chdir or Path.cwd()).absolute()),
        ),
        queue_anyway=queue_anyway,
    )


def _environment(variables: Sequence[str]) -> dict[str, str]:
    found = {name: os.environ[name] for name in PASSED_ON if name in os.environ}
    for variable in variables:
        name, given, value = variable.partition("=")
        if not given and name not in os.environ:
            raise InvalidInput(f"the variable {name!r} is not set", field="env")
        found[name] = value if given else os.environ[name]
    return found
