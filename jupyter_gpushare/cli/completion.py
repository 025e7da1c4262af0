"""`jupyter gpushare completion bash|zsh|fish`: click's completion script for a shell.

Click completes `jupyter-gpushare`. A few lines in addition forward `jupyter gpushare` to it, and
leave other commands of `jupyter` to their existing completion.
"""

from __future__ import annotations

from typing import Final

import click
from click.shell_completion import FishComplete, get_completion_class

from jupyter_gpushare.cli import COMPLETE_VARIABLE, gpushare

__all__ = ["completion"]

PROGRAM: Final = "jupyter-gpushare"

BASH: Final = """\
_jupyter_gpushare_of_jupyter() {
    if [[ $COMP_CWORD -ge 2 && ${COMP_WORDS[1]} == gpushare ]]; then
        local -a ours=(jupyter-gpushare "${COMP_WORDS[@]:2}")
        local place=$((COMP_CWORD - 1))
        local -a COMP_WORDS=("${ours[@]}")
        local COMP_CWORD=$place
        _jupyter_gpushare_completion jupyter-gpushare
        return
    fi
    if [[ -n $_jupyter_gpushare_others ]]; then
        $_jupyter_gpushare_others "$@"
    fi
    if [[ $COMP_CWORD -eq 1 && gpushare == "${COMP_WORDS[1]}"* ]]; then
        COMPREPLY+=(gpushare)
    fi
}

_jupyter_gpushare_found=$(complete -p jupyter 2>/dev/null | sed -n 's/.*-F \\([^ ]*\\) .*/\\1/p')
if [[ $_jupyter_gpushare_found != _jupyter_gpushare_of_jupyter ]]; then
    _jupyter_gpushare_others=$_jupyter_gpushare_found
fi
complete -o nosort -F _jupyter_gpushare_of_jupyter jupyter
"""

ZSH: Final = """\
_jupyter_gpushare_of_jupyter() {
    if (( CURRENT > 2 )) && [[ $words[2] == gpushare ]]; then
        shift words
        words[1]=jupyter-gpushare
        (( CURRENT-- ))
        _jupyter_gpushare_completion
    else
        (( CURRENT == 2 )) && compadd gpushare
        [[ -n $_jupyter_gpushare_others ]] && $_jupyter_gpushare_others "$@"
    fi
}

if [[ $_comps[jupyter] != _jupyter_gpushare_of_jupyter ]]; then
    _jupyter_gpushare_others=$_comps[jupyter]
fi
compdef _jupyter_gpushare_of_jupyter jupyter
"""

FISH: Final = """\
complete --command jupyter --condition __fish_use_subcommand --arguments gpushare
complete --no-files --command jupyter --condition "__fish_seen_subcommand_from gpushare" \\
    --arguments "(_jupyter_gpushare_of_jupyter)"
"""


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> int:
    """Print the script that lets SHELL complete commands, options and names.

    \b
    bash, in ~/.bashrc:              eval "$(jupyter gpushare completion bash)"
    zsh, in ~/.zshrc after compinit: eval "$(jupyter gpushare completion zsh)"
    fish:  jupyter gpushare completion fish > ~/.config/fish/completions/jupyter-gpushare.fish
           echo 'source ~/.config/fish/completions/jupyter-gpushare.fish' >>
           ~/.config/fish/config.fish

    Names of projects, node pools, nodes and workloads are completed if the scheduler responds
    within a second.
    """
    kind = get_completion_class(shell)
    assert kind is not None
    source = kind(gpushare, {}, PROGRAM, COMPLETE_VARIABLE).source()
    click.echo(_whole(source) if shell == "fish" else source)
    click.echo({"bash": BASH, "zsh": ZSH, "fish": _fish_of_jupyter() + FISH}[shell], nl=False)
    return 0


def _whole(source: str) -> str:
    """Click's fish script cuts a completion at its first comma (`--columns queue,pool`)."""
    return source.replace('string split "," $completion', 'string split --max 1 "," $completion')


def _fish_of_jupyter() -> str:
    """Click's function for a program of two words, without its last line, which would complete all
    of `jupyter`.
    """
    ours = "(commandline -cp | string replace --regex '^\\s*\\S+\\s+gpushare' jupyter-gpushare)"
    named = {
        "complete_func": "_jupyter_gpushare_of_jupyter",
        "complete_var": COMPLETE_VARIABLE,
        "prog_name": PROGRAM,
    }
    text = _whole(FishComplete.source_template % named).replace("(commandline -cp)", ours)
    return text[: text.rindex("complete --no-files")]
