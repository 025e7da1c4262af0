"""The magic `gpu`: runs a verb (`%gpu`), or a cell with a share (`%%gpu`)."""

from __future__ import annotations

from typing import Any, Final

from IPython.core.error import UsageError

from .. import gpu
from ..display import text as text_view
from ..display.html import DisplayValue, card_html, preformatted_html
from ..grant_wait import INTERRUPTED, request_share, wait_for_grant
from ..kernel_body import Json
from ..option_names import MAGIC_OPTIONS, with_options
from ..rpc import GpuError, kernel_in, send_request
from ..session import current
from .parsers import CELL, HelpRequested, parsed
from .usage import OVERVIEW
from .verbs import VERBS, body_of

__all__ = ["gpu_magic"]

CELL_INTERRUPTED: Final = (
    "the wait for the GPU was stopped, so the cell did not run. Its request is cancelled; this"
    " notebook has the share and the pending request that it had before."
)


def gpu_magic(shell: Any, line: str, cell: str | None = None) -> DisplayValue | None:
    """`%gpu …`, or `%%gpu …` with its cell. `ipython_extension` registers the magic."""
    try:
        if cell is None:
            return _run_verb(line)
        _run_cell_with(body_of(parsed(CELL, line)), shell, cell)
    except HelpRequested as help_text:
        return _preformatted(str(help_text))
    except GpuError as error:
        text = " ".join(str(error).split())
        raise UsageError(with_options(text, MAGIC_OPTIONS)) from None
    return None


def _run_verb(line: str) -> DisplayValue:
    name, _, rest = line.strip().partition(" ")
    if name in ("-h", "--help", "help"):
        return _preformatted(OVERVIEW)
    verb = VERBS.get(name or "status")
    if verb is None:
        raise UsageError(f"unknown verb {name!r} of %gpu; verbs: {', '.join(VERBS)}")
    result = verb.run(parsed(verb.parser, rest))
    if isinstance(result, DisplayValue):
        return result
    if isinstance(result, str):
        return DisplayValue(result)
    problem = current().connection.loss_text
    text = text_view.kernel_text(result, agent_problem=problem)
    return DisplayValue(text, card_html(result, agent_problem=problem))


def _preformatted(text: str) -> DisplayValue:
    return DisplayValue(text.rstrip(), preformatted_html(text.rstrip()))


def _request_of(kernel: Json) -> Json | None:
    """The request of a kernel, for a server that was restarted and does not know it."""
    gpu_share, memory = kernel["request"]["gpu"], kernel["request"]["gpu_memory_mib"]
    if gpu_share is not None:
        return {"gpu": gpu_share, "project": kernel["project"]}
    if memory is not None:
        return {"gpu_memory": f"{memory}MiB", "project": kernel["project"]}
    return None


def _restore(previous: Json | None, change: Json | None) -> None:
    """Request what the notebook had before the cell: its share and a pending change of it; or
    release the cell's share.
    """
    if previous is None:
        gpu.release()
    else:
        send_request(previous)
    if change is not None:
        send_request(change)


def _run_cell_with(body: Json, shell: Any, cell: str) -> None:
    session = current()
    before = _request_of(session.connection.kernel)
    reply = request_share(body, wait=False)
    previous = reply.get("previous") or before
    try:
        wait_for_grant(kernel_in(session, reply), None)
        _run_cell(shell, cell)
    except GpuError as error:
        if error.code == INTERRUPTED:
            raise GpuError(CELL_INTERRUPTED, INTERRUPTED) from None
        raise
    finally:
        _restore(previous, reply.get("previous_change"))


def _run_cell(shell: Any, cell: str) -> None:
    """Run the cell as if it were alone. Its error is raised here, and shown once."""
    shown = ("showtraceback", "showsyntaxerror")
    try:
        for name in shown:
            setattr(shell, name, lambda *_, **__: None)
        result = shell.run_cell(cell, store_history=False)
    finally:
        for name in shown:
            delattr(shell, name)
    result.raise_error()
