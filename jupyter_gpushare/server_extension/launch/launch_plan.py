"""Decides for one launch what makes the kernel's cells ask: code in the kernel (`bootstrap`), a
proxy between the server and the kernel (`proxy`), or nothing (`none`). Pure.

The command decides, not the language: xeus-python says "python" as well, but is no IPython kernel.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Final

from jupyter_gpushare.messages import GateKind

__all__ = ["LaunchPlan", "plan_launch"]

IPYKERNEL: Final = re.compile(r"\bipykernel(_launcher|\.kernelapp)?\b|\bipython3? kernel\b")
XEUS_PYTHON: Final = re.compile(r"\bxpython(_launcher)?\b|\bxeus_python\b")
OTHER_PYTHON_KERNELS: Final = re.compile(r"\b(bash_kernel|metakernel\w*|echo_kernel)\b")
"""Written in Python, but without an IPython shell."""
CLEARS_ENVIRONMENT: Final = re.compile(
    r"\benv\s+(-\S*i\S*|--ignore-environment|-)(\s|$)|\bsudo\s+(?!.*(-E\b|--preserve-env))"
)


@dataclass(frozen=True, slots=True)
class LaunchPlan:
    """What makes the cells of one launch ask, and why: one sentence for the log."""

    gate: GateKind
    reason: str


def plan_launch(
    argv: Sequence[str], language: str, *, never_connected: bool = False, has_proxy: bool = False
) -> LaunchPlan:
    """The plan for a kernelspec's command.

    `never_connected`: an earlier kernel of the same kernelspec was handed our code and did not
    connect to the agent. `has_proxy`: the proxy may be used.
    """
    problem = _bootstrap_problem(argv, language, never_connected)
    if not problem:
        return LaunchPlan("bootstrap", "an IPython kernel loads the cell gate when it starts")
    return LaunchPlan("proxy" if has_proxy else "none", problem)


def _bootstrap_problem(argv: Sequence[str], language: str, never_connected: bool) -> str:
    """Why our code cannot be loaded into this kernel; "": it can."""
    if not argv:
        return "the kernelspec has no command"
    command = " ".join((PurePath(argv[0]).name, *argv[1:]))
    if CLEARS_ENVIRONMENT.search(command):
        return "the kernel's command clears the environment"
    if never_connected:
        return "an earlier kernel of this kernelspec did not load the cell gate"
    if IPYKERNEL.search(command):
        return ""
    if XEUS_PYTHON.search(command):
        return "xeus-python is no IPython kernel"
    if language.lower() not in ("python", "python3", "ipython", "sage"):
        return f"a kernel of the language {language or 'unknown'!r} has no cell gate of its own"
    if OTHER_PYTHON_KERNELS.search(command):
        return "the kernel is written in Python, but is no IPython kernel"
    return ""
