"""The options of each verb. `--help` raises `HelpRequested` with the text to show."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any, Final

from IPython.core.error import UsageError
from IPython.core.magic_arguments import MagicArgumentParser

from .usage import DOCS, SUMMARIES

__all__ = ["CELL", "HelpRequested", "history_parser", "parsed", "plain_parser", "request_parser"]

HELP_WIDTH: Final = 80
CELL_SUMMARY: Final = "run one cell with a share, then restore the previous share"


class HelpRequested(Exception):
    """Raised by `--help`, with the text to show."""


class _ShowHelp(argparse.Action):
    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        raise HelpRequested(parser.format_help())


def _formatter(prog: str) -> argparse.HelpFormatter:
    return argparse.RawDescriptionHelpFormatter(prog, max_help_position=28, width=HELP_WIDTH)


def _parser(command: str, summary: str, examples: Sequence[str]) -> Any:
    lines = "\n".join(f"  {example}" for example in examples)
    parser = MagicArgumentParser(
        prog=command,
        description=f"{summary[0].upper()}{summary[1:]}.",
        epilog=f"examples:\n{lines}\n\nDocumentation: {DOCS}",
        formatter_class=_formatter,
        add_help=False,
    )
    parser.add_argument("-h", "--help", action=_ShowHelp, nargs=0, help="show this help")
    return parser


def _add_share(parser: Any) -> None:
    parser.add_argument("gpu", nargs="?", metavar="SHARE", help="GPUs: 0.5, 2")
    parser.add_argument(
        "--memory", metavar="SIZE", help="GPU memory in place of SHARE, with a unit: 20GiB, 512MiB"
    )
    parser.add_argument(
        "--limit", metavar="GPUS", help="burst limit in GPUs; default: the whole GPU"
    )
    parser.add_argument("--project", metavar="NAME", help="default: your default project")
    parser.add_argument("--pool", metavar="A,B", help="node pools, in order")
    parser.add_argument("--priority", metavar="CLASS", help="priority class")


def plain_parser(verb: str) -> Any:
    """A verb without options."""
    return _parser(f"%gpu {verb}", SUMMARIES[verb], [f"%gpu {verb}"])


def request_parser(verb: str) -> Any:
    """`request` and `what-if`."""
    examples = [
        f"%gpu {verb} 0.5",
        f"%gpu {verb} 0.5 --limit 1.0 --project vision",
        f"%gpu {verb} --memory 20GiB --pool a100,default",
    ]
    if verb == "request":
        examples.append("%gpu request 1 --no-wait")
    parser = _parser(f"%gpu {verb}", SUMMARIES[verb], examples)
    _add_share(parser)
    if verb == "request":
        parser.add_argument(
            "--no-wait", action="store_true", help="return at once; later cells wait for the GPU"
        )
        _add_queue_anyway(parser)
    return parser


def _add_queue_anyway(parser: Any) -> None:
    parser.add_argument(
        "--queue-anyway",
        action="store_true",
        help="stay in the queue even if no node can run the request now",
    )


def history_parser() -> Any:
    """`history`."""
    examples = ["%gpu history", "%gpu history --minutes 15"]
    parser = _parser("%gpu history", SUMMARIES["history"], examples)
    parser.add_argument(
        "--minutes", type=int, default=60, metavar="N", help="how far back: 1 to 1440, default 60"
    )
    return parser


def _cell_parser() -> Any:
    parser = _parser("%%gpu", CELL_SUMMARY, ["%%gpu 1", "%%gpu --memory 40GiB --project vision"])
    _add_share(parser)
    _add_queue_anyway(parser)
    return parser


CELL: Final = _cell_parser()


def parsed(parser: Any, line: str) -> Any:
    """The options in a line.

    Raises:
        UsageError: one line.
        HelpRequested: the line asks for help.
    """
    try:
        return parser.parse_argstring(line)
    except ValueError as error:  # a quotation mark without its pair
        raise UsageError(f"{str(error).lower()}, got {line.strip()}") from None
    except UsageError as error:
        raise UsageError(f"{' '.join(str(error).split())}; see `{parser.prog} --help`") from None
