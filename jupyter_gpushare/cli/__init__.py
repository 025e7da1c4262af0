"""`jupyter gpushare …`: the table of commands, and the format of errors.

A command is one entry in `COMMANDS`: name, place of its click command, and help line. Commands are
imported when they are called, so that help does not load tornado, SQL and NumPy.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

import click

from jupyter_gpushare.scheduler_packages import missing_text

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
    "print_error",
]

BAD_INPUT: Final = 2
"""Exit status for invalid input."""
REFUSED: Final = 1
"""Exit status for a refused or failed action."""

COMPLETE_VARIABLE: Final = "_JUPYTER_GPUSHARE_COMPLETE"
"""The variable through which a shell requests completions from click."""

COMMANDS: Final[dict[str, tuple[str, str]]] = {
    "demo": (
        "jupyter_gpushare.cli.demo:demo",
        "Run JupyterLab with the scheduler and simulated GPUs.",
    ),
    "scheduler": ("jupyter_gpushare.cli.scheduler:scheduler", "Run the scheduler service."),
    "db": ("jupyter_gpushare.cli.db:db", "Upgrade, back up or check the scheduler's database."),
    "agent": ("jupyter_gpushare.cli.agent:agent", "Run the node agent of this machine."),
    "validate": (
        "jupyter_gpushare.cli.validate:validate",
        "Check a policy file; print all problems with line and field.",
    ),
    "simulate": (
        "jupyter_gpushare.cli.simulate:simulate",
        "Run scenario files and show the scheduler's decisions.",
    ),
    "fairshare": ("jupyter_gpushare.cli.fairshare:fairshare", "Divide resources among queues."),
    "status": (
        "jupyter_gpushare.cli.query:status",
        "Show the scheduler, your projects and your workloads.",
    ),
    "queue": (
        "jupyter_gpushare.cli.query:queue",
        "Show quota, fair share and allocation of the queues.",
    ),
    "nodes": ("jupyter_gpushare.cli.query:nodes", "Show the nodes and their GPUs."),
    "top": (
        "jupyter_gpushare.cli.top:top",
        "Show nodes, GPUs and workloads, live in the terminal.",
    ),
    "pools": ("jupyter_gpushare.cli.query:pools", "Show the node pools."),
    "waiting": ("jupyter_gpushare.cli.query:waiting", "Show the queue of pending workloads."),
    "whoami": ("jupyter_gpushare.cli.query:whoami", "Show your identity and permissions."),
    "projects": ("jupyter_gpushare.cli.query:projects", "Show the projects."),
    "people": (
        "jupyter_gpushare.cli.people:people",
        "Show the people of projects that you manage.",
    ),
    "limit": ("jupyter_gpushare.cli.people:limit", "Limit one person in a project."),
    "next-turn": (
        "jupyter_gpushare.cli.people:next_turn",
        "Put a pending workload first in its project.",
    ),
    "release": ("jupyter_gpushare.cli.people:release", "Release the GPU of a workload."),
    "book": ("jupyter_gpushare.cli.bookings:book", "Book GPUs for a window of time."),
    "bookings": ("jupyter_gpushare.cli.bookings:bookings", "Show bookings of your projects."),
    "unbook": ("jupyter_gpushare.cli.bookings:unbook", "Cancel a booking."),
    "cordon": ("jupyter_gpushare.cli.cordon:cordon", "Place no new workloads on a node."),
    "uncordon": ("jupyter_gpushare.cli.cordon:uncordon", "Accept new workloads on a node again."),
    "drain": ("jupyter_gpushare.cli.cordon:drain", "Cordon a node and evict its workloads."),
    "policy": (
        "jupyter_gpushare.cli.policy:policy",
        "Show the policy schema, or what a policy file would change.",
    ),
    "why": (
        "jupyter_gpushare.cli.explain:why",
        "Show why a workload is pending, and what would help.",
    ),
    "what-if": (
        "jupyter_gpushare.cli.explain:what_if",
        "Show whether a request would start now, and what it would displace.",
    ),
    "usage": (
        "jupyter_gpushare.cli.usage:usage",
        "Show GPU-hours per project, person or notebook.",
    ),
    "audit": (
        "jupyter_gpushare.cli.usage:audit",
        "Show the audit log: administrators' actions, and evictions.",
    ),
    "run": (
        "jupyter_gpushare.cli.run:run",
        "Run a command on a node with GPUs, under the same quotas as notebooks.",
    ),
    "shell": ("jupyter_gpushare.cli.shell:shell", "Open a shell with a share on this machine."),
    "logs": ("jupyter_gpushare.cli.run:logs", "Show the output of a batch workload."),
    "cancel": ("jupyter_gpushare.cli.run:cancel", "End a batch workload."),
    "list": ("jupyter_gpushare.cli.run:list_", "Show batch workloads."),
    "kube": (
        "jupyter_gpushare.cli.kube:kube",
        "Check a Kubernetes cluster, or write the Helm chart.",
    ),
    "enable": (
        "jupyter_gpushare.cli.enable:enable",
        "Start kernels of papermill, nbconvert and other tools through gpushare.",
    ),
    "disable": ("jupyter_gpushare.cli.enable:disable", "Undo `enable`."),
    "install-service": (
        "jupyter_gpushare.cli.install_service:install_service",
        "Write the systemd unit of the scheduler or the agent.",
    ),
    "token": ("jupyter_gpushare.cli.token:token", "Create, list and revoke tokens."),
    "completion": (
        "jupyter_gpushare.cli.completion:completion",
        "Print the completion script of a shell.",
    ),
}
"""Name -> ("module:attribute", help line)."""


class LazyGroup(click.Group):
    """A group whose commands are imported when they are called."""

    def list_commands(
        self,
        ctx: click.Context,  # noqa: ARG002 - required by click
    ) -> list[str]:
        """The names, in the order of the table."""
        return list(COMMANDS)

    def get_command(
        self,
        ctx: click.Context,  # noqa: ARG002 - required by click
        cmd_name: str,
    ) -> click.Command | None:
        """The command of this name, imported now; None: unknown."""
        if cmd_name not in COMMANDS:
            return None
        module, _, attribute = COMMANDS[cmd_name][0].partition(":")
        command = getattr(import_module(module), attribute)
        assert isinstance(command, click.Command)
        return command

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """The names from the table: the commands' own help would import all of them at every key
        press.
        """
        from click.shell_completion import CompletionItem

        names = [
            CompletionItem(name, help=text)
            for name, (_, text) in COMMANDS.items()
            if name.startswith(incomplete)
        ]
        return names + click.Command.shell_complete(self, ctx, incomplete)

    def format_commands(
        self,
        ctx: click.Context,  # noqa: ARG002 - required by click
        formatter: click.HelpFormatter,
    ) -> None:
        """The list of commands, from the table."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items()])


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="jupyter-gpushare", prog_name="jupyter gpushare")
def gpushare() -> None:
    """Share GPUs between notebooks."""


def print_error(what: str, where: str | None = None) -> None:
    """One line on stderr: `error: <what> (<where>)`."""
    line = " ".join(what.split()).rstrip(".")
    click.echo(f"error: {line} ({where})" if where else f"error: {line}", err=True)


def main(args: Sequence[str] | None = None) -> Any:
    """The console script. Errors are one line on stderr and an exit status."""
    from jupyter_gpushare.core.model.errors import GpuShareError

    try:
        status = gpushare.main(
            args=args,
            prog_name="jupyter gpushare",
            complete_var=COMPLETE_VARIABLE,
            standalone_mode=False,
        )
    except GpuShareError as error:
        what, where = _in_options(error, args)
        print_error(what.rstrip(".") + _docs(error), where)
        sys.exit(_status(error))
    except click.exceptions.Abort:
        print_error("interrupted", _called(args))
        sys.exit(130)
    except click.UsageError as error:
        print_error(error.format_message(), error.ctx.command_path if error.ctx else None)
        sys.exit(BAD_INPUT)
    except click.ClickException as error:
        print_error(error.format_message(), _called(args))
        sys.exit(REFUSED)
    except ModuleNotFoundError as error:
        called = _called(args)
        extra = "demo" if called.endswith(" demo") else "scheduler"
        if (text := missing_text(error, called, extra)) is None:
            raise
        print_error(text)
        sys.exit(REFUSED)
    except BrokenPipeError:
        sys.stderr.close()  # the reader (`| head`) has exited; Python would print an error at exit
        sys.exit(REFUSED)
    sys.exit(status if isinstance(status, int) else 0)


def _in_options(error: GpuShareError, args: Sequence[str] | None) -> tuple[str, str]:
    """Message and place; those of a request in terms of its options."""
    from jupyter_gpushare.kernel.option_names import COMMAND_OPTIONS, with_options

    where = _where(error, args)
    if _called(args).endswith(("run", "what-if", "shell")):
        field = where.rpartition(".")[2]
        where = COMMAND_OPTIONS.get(field, where)
        return with_options(error.message, COMMAND_OPTIONS), where
    return error.message, where


def _docs(error: GpuShareError) -> str:
    """Where the documentation explains the code; empty where the message says everything."""
    from jupyter_gpushare.core.model.code_help import ERRORS, GENERAL_ERRORS, REASONS
    from jupyter_gpushare.kernel.documentation import address_of_code

    is_explained = error.code in ERRORS or error.code in set(REASONS)
    if not is_explained or error.code in GENERAL_ERRORS or hasattr(error, "where"):
        return ""
    return f"; docs: {address_of_code(error.code)}"


def _where(error: GpuShareError, args: Sequence[str] | None) -> str:
    """File and line if a file is at fault, else the field, else the command."""
    return getattr(error, "where", None) or error.field or _called(args)


def _called(args: Sequence[str] | None) -> str:
    """The command without its arguments, which may contain a token."""
    command = next(
        (word for word in (sys.argv[1:] if args is None else args) if word in COMMANDS), ""
    )
    return f"jupyter gpushare {command}".rstrip()


def _status(error: GpuShareError) -> int:
    """2 for invalid input, else 1."""
    return BAD_INPUT if error.status_hint == 400 else REFUSED
