"""`jupyter gpushare …`: which commands there are, and how their errors look. Imports a command only
when it is called.

A command is one line in `COMMANDS`: its name, and where its click command is. Help of the whole
group must not pay for tornado, SQL and NumPy, so the one-line helps stand here too.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

import click

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from jupyter_gpushare.core.model.errors import GpuShareError

__all__ = [
    "COMMANDS",
    "COMPLETE_VARIABLE",
    "BAD_INPUT",
    "REFUSED",
    "LazyGroup",
    "gpushare",
    "main",
    "say_error",
]

BAD_INPUT: Final = 2
"""Exit status when what was given cannot be read or makes no sense."""
REFUSED: Final = 1
"""Exit status when an action was refused or failed."""

COMPLETE_VARIABLE: Final = "_JUPYTER_GPUSHARE_COMPLETE"
"""By which click knows that a shell asks for completions."""

COMMANDS: Final[dict[str, tuple[str, str]]] = {
    "demo": (
        "jupyter_gpushare.cli.demo:demo",
        "JupyterLab with the scheduler and simulated GPUs, ready to try.",
    ),
    "scheduler": ("jupyter_gpushare.cli.scheduler:scheduler", "Run the scheduler service."),
    "db": ("jupyter_gpushare.cli.db:db", "Upgrade, back up or check the scheduler's database."),
    "agent": ("jupyter_gpushare.cli.agent:agent", "Run the node agent of this machine."),
    "validate": (
        "jupyter_gpushare.cli.validate:validate",
        "Check a policy file; print every problem with its line and field.",
    ),
    "simulate": (
        "jupyter_gpushare.cli.simulate:simulate",
        "Run scenario files and show what the scheduler decides.",
    ),
    "fairshare": ("jupyter_gpushare.cli.fairshare:fairshare", "Divide resources among queues."),
    "status": (
        "jupyter_gpushare.cli.query:status",
        "What the scheduler says about itself and you.",
    ),
    "queue": ("jupyter_gpushare.cli.query:queue", "Quota, fair share and use of the queues."),
    "nodes": ("jupyter_gpushare.cli.query:nodes", "The nodes and their GPUs."),
    "pools": ("jupyter_gpushare.cli.query:pools", "The node pools."),
    "waiting": ("jupyter_gpushare.cli.query:waiting", "Everybody's place in the queue."),
    "whoami": ("jupyter_gpushare.cli.query:whoami", "Who you are to the scheduler."),
    "projects": ("jupyter_gpushare.cli.query:projects", "The projects that you may see."),
    "cordon": ("jupyter_gpushare.cli.cordon:cordon", "Place nothing new on a node."),
    "uncordon": ("jupyter_gpushare.cli.cordon:uncordon", "A node takes work again."),
    "drain": (
        "jupyter_gpushare.cli.cordon:drain",
        "Cordon a node, and ask what runs there to leave.",
    ),
    "policy": (
        "jupyter_gpushare.cli.policy:policy",
        "What a policy file may say, and what one would change, for whom.",
    ),
    "why": ("jupyter_gpushare.cli.explain:why", "Why a workload waits, and what would help."),
    "what-if": (
        "jupyter_gpushare.cli.explain:what_if",
        "Would it start now, where, and whom would it displace?",
    ),
    "usage": ("jupyter_gpushare.cli.usage:usage", "GPU-hours per project, person or notebook."),
    "audit": (
        "jupyter_gpushare.cli.usage:audit",
        "What administrators did, and who was evicted and why.",
    ),
    "run": (
        "jupyter_gpushare.cli.run:run",
        "Run a command on a machine with GPUs, under the same quotas as notebooks.",
    ),
    "logs": ("jupyter_gpushare.cli.run:logs", "What batch work has printed."),
    "cancel": ("jupyter_gpushare.cli.run:cancel", "End batch work."),
    "list": ("jupyter_gpushare.cli.run:list_", "Batch work: what runs, what waits, what is over."),
    "token": ("jupyter_gpushare.cli.token:token", "Create, list and revoke tokens."),
    "completion": (
        "jupyter_gpushare.cli.completion:completion",
        "Let a shell complete commands, options and names.",
    ),
}
"""Name -> ("module:attribute", one line of help)."""


class LazyGroup(click.Group):
    """A group whose commands are imported when they are called."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """The names, in the order of the table."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - click's signature
        """The command of that name, imported now; None: there is none."""
        if cmd_name not in COMMANDS:
            return None
        module, _, attribute = COMMANDS[cmd_name][0].partition(":")
        command = getattr(import_module(module), attribute)
        assert isinstance(command, click.Command)
        return command

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """The names from the table alone: asking each command for its help would import them all at
        every press of a key.
        """
        from click.shell_completion import CompletionItem

        names = [
            CompletionItem(name, help=said)
            for name, (_, said) in COMMANDS.items()
            if name.startswith(incomplete)
        ]
        return names + click.Command.shell_complete(self, ctx, incomplete)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002 - click's signature
        """The list of commands from the table alone."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, said) for name, (_, said) in COMMANDS.items()])


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="jupyter-gpushare", prog_name="jupyter gpushare")
def gpushare() -> None:
    """Share GPUs between notebooks."""


def say_error(what: str, where: str | None = None) -> None:
    """One line on stderr: `error: <what> (<where>)`."""
    line = " ".join(what.split()).rstrip(".")
    click.echo(f"error: {line} ({where})" if where else f"error: {line}", err=True)


def main(args: Sequence[str] | None = None) -> Any:
    """The console script. Every error of ours, and every mistake in the arguments, is one line on
    stderr and an exit status.
    """
    from jupyter_gpushare.core.model.errors import GpuShareError

    try:
        status = gpushare.main(
            args=args,
            prog_name="jupyter gpushare",
            complete_var=COMPLETE_VARIABLE,
            standalone_mode=False,
        )
    except GpuShareError as error:
        say_error(error.message, _where(error, args))
        sys.exit(_status(error))
    except click.exceptions.Abort:
        say_error("interrupted", _called(args))
        sys.exit(130)
    except click.UsageError as error:
        say_error(error.format_message(), error.ctx.command_path if error.ctx else None)
        sys.exit(BAD_INPUT)
    except click.ClickException as error:
        say_error(error.format_message(), _called(args))
        sys.exit(REFUSED)
    except BrokenPipeError:
        sys.stderr.close()  # the reader (`| head`) has gone; Python would complain at exit
        sys.exit(REFUSED)
    sys.exit(status if isinstance(status, int) else 0)


def _where(error: GpuShareError, args: Sequence[str] | None) -> str:
    """File and line when a file is at fault, else the field, else the command itself."""
    return getattr(error, "where", None) or error.field or _called(args)


def _called(args: Sequence[str] | None) -> str:
    """The command as it was called, without what was passed to it (a token may be among that)."""
    command = next(
        (word for word in (sys.argv[1:] if args is None else args) if word in COMMANDS), ""
    )
    return f"jupyter gpushare {command}".rstrip()


def _status(error: GpuShareError) -> int:
    """What is at fault in the input is 2, everything else 1."""
    return BAD_INPUT if error.status_hint == 400 else REFUSED
