"""docs/reference/errors.md: every code with its cause and remedy, from the tables in the code."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from pkgutil import walk_packages

import jupyter_gpushare
from jupyter_gpushare.core.model.code_help import ERRORS, NODE_CONDITIONS, REASONS, CodeHelp
from jupyter_gpushare.core.model.errors import GpuShareError

HEAD = (
    "Every pending workload has one reason, every error one code, and every node that accepts no"
    " work its conditions. Messages name them; this page says what they mean and what to do."
    " `jupyter gpushare why` and `%gpu why` print the reason of a wait with its numbers and with"
    " changes that would help; both are checked against the state at that moment, so try them"
    " first."
)
REASON_HEAD = (
    "The code is in brackets behind the sentence, in the dashboard's column *Reason* and in"
    " `reason.code`. Reasons are checked"
    " [in this order](../explanation/scheduling.md#reasons)."
)
ERROR_HEAD = (
    '`code` in the body of an error, `{"error": {"code", "message", "field"?}}`, and in'
    " `gpu.GpuError`; at the end the exceptions that end a cell. The number is the status of an"
    " HTTP answer. A request that can never start is refused with the code of its reason"
    " (`NeverFits`, `OverLimit`, `NonPreemptibleOverQuota`) and status 409."
)
NODE_HEAD = (
    "`reasons` of a node in `jupyter gpushare nodes`, the dashboard and the metric"
    " `gpushare_node_ready`. Work that runs on such a node stays."
    " [Maintain nodes](../how-to/nodes.md)."
)


def errors(written: str) -> str:
    """The page."""
    statuses = statuses_of_codes()
    return "\n\n".join(
        [
            "# Troubleshooting: reasons and error codes",
            written,
            HEAD,
            "## Why a notebook or job waits",
            REASON_HEAD,
            *_sections({str(code): known for code, known in REASONS.items()}),
            "## Errors",
            ERROR_HEAD,
            *_sections(ERRORS, statuses),
            "## Why a node accepts no work",
            NODE_HEAD,
            *_sections({str(code): known for code, known in NODE_CONDITIONS.items()}),
            "",
        ]
    )


def _sections(
    codes: Mapping[str, CodeHelp], statuses: Mapping[str, int] | None = None
) -> Iterator[str]:
    for code, known in codes.items():
        status = (statuses or {}).get(code)
        yield f"### {code}"
        yield f"{known.cause}" + (f" HTTP status {status}." if status else "")
        yield f"**What to do:** {known.remedy}"


def error_classes() -> list[type[GpuShareError]]:
    """The family of errors, with every module of the package imported."""
    for module in walk_packages(jupyter_gpushare.__path__, "jupyter_gpushare."):
        if not module.name.endswith(("__main__", ".startup")) and ".migrations" not in module.name:
            import_module(module.name)
    found, left = [], [GpuShareError]
    while left:
        one = left.pop()
        found.append(one)
        left += one.__subclasses__()
    return found


def statuses_of_codes() -> dict[str, int]:
    """The HTTP status of each code."""
    return {
        one.code: one.status_hint for one in reversed(error_classes()) if one is not GpuShareError
    }
