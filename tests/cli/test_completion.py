"""Shell completion, asked the way shells ask: commands, options and words; names where a scheduler
answers; silence where none does.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from jupyter_gpushare.cli import COMMANDS, COMPLETE_VARIABLE
from tests.cli.command import gpushare
from tests.scheduler.agents import FakeAgent
from tests.scheduler.running_server import RunningServer, asking, open_server

BIN = Path(sys.executable).parent


def environment(home: Path, **more: str) -> dict[str, str]:
    clean = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("GPUSHARE", "JUPYTER"))
    }
    return clean | {
        "HOME": str(home),
        "GPUSHARE_STATE": str(home),
        "PATH": f"{BIN}:{os.environ['PATH']}",
        **more,
    }


def completed(home: Path, line: str, **more: str) -> list[str]:
    """What `jupyter-gpushare` offers to a shell for the last word of this line."""
    words = line.split(" ")
    asked = {
        COMPLETE_VARIABLE: "bash_complete",
        "COMP_WORDS": line,
        "COMP_CWORD": str(len(words) - 1),
    }
    done = subprocess.run(
        [BIN / "jupyter-gpushare"],
        env=environment(home, **more) | asked,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.stderr == ""
    return [offer.partition(",")[2] for offer in done.stdout.splitlines() if offer]


LINES = {
    "commands": ("gpushare wh", ["whoami", "why", "what-if"]),
    "commands of a group": ("gpushare token re", ["revoke"]),
    "options": ("gpushare usage --co", ["--columns"]),
    "choices": ("gpushare usage --by p", ["project", "person"]),
    "columns": ("gpushare usage --columns us", ["user", "used"]),
    "a second column": ("gpushare usage --columns held,us", ["held,user", "held,used"]),
    "a column that is there already": ("gpushare usage --columns used,us", ["used,user"]),
    "shells": ("gpushare completion f", ["fish"]),
    "names without a scheduler": ("gpushare why a", []),
}


@pytest.mark.parametrize(("line", "expected"), LINES.values(), ids=LINES)
def test_words_are_completed(tmp_path: Path, line: str, expected: list[str]) -> None:
    assert completed(tmp_path, line) == expected


NAMES = {
    "gpushare what-if --project vis": ["vision"],
    "gpushare run --pool def": ["default"],
    "gpushare run --pool default,": [],
    "gpushare run --priority inter": ["interactive"],
    "gpushare cordon n": ["n0"],
    "gpushare why work": ["work-of-alice"],
    "gpushare cancel work": [],
}


@pytest.mark.slow
def test_names_are_the_schedulers(tmp_path: Path) -> None:
    async def story() -> None:
        async with open_server(tmp_path) as running:
            agent = FakeAgent()
            async with agent.linked(running.admin):
                await running.admin.submit(asking("work-of-alice", project="vision", kernel_id="k"))
                await agent.until(lambda: agent.holds)
                file = tmp_path / "token"
                file.write_text(running.admin_token)
                given = {"GPUSHARE_SCHEDULER": running.url, "GPUSHARE_TOKEN_FILE": str(file)}
                for line, expected in NAMES.items():
                    assert (
                        await asyncio.to_thread(completed, tmp_path, line, **given) == expected
                    ), line
                by_options = f"gpushare drain --scheduler {running.url} --token-file {file} "
                assert await asyncio.to_thread(completed, tmp_path, by_options) == ["n0"]
                await of_a_refused_one(running, tmp_path)

    asyncio.run(story())


async def of_a_refused_one(running: RunningServer, home: Path) -> None:
    file = home / "wrong"
    file.write_text("gpushare_wrong")
    given = {"GPUSHARE_SCHEDULER": running.url, "GPUSHARE_TOKEN_FILE": str(file)}
    assert await asyncio.to_thread(completed, home, "gpushare drain n", **given) == []


@pytest.mark.slow
def test_a_scheduler_that_does_not_answer_is_not_waited_for(tmp_path: Path) -> None:
    """It takes the call and says nothing: without a bound this test would never end."""
    left = asyncio.Event()

    async def say_nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()  # until the caller has had enough
        writer.close()
        await writer.wait_closed()
        left.set()

    async def story() -> None:
        silent = await asyncio.start_server(say_nothing, "127.0.0.1", 0)
        file = tmp_path / "token"
        file.write_text("gpushare_token")
        url = f"http://127.0.0.1:{silent.sockets[0].getsockname()[1]}"
        given = {"GPUSHARE_SCHEDULER": url, "GPUSHARE_TOKEN_FILE": str(file)}
        assert await asyncio.to_thread(completed, tmp_path, "gpushare drain n", **given) == []
        await left.wait()
        silent.close()
        await silent.wait_closed()

    asyncio.run(story())


def shell(home: Path, *command: str) -> str:
    done = subprocess.run(
        command, env=environment(home), capture_output=True, text=True, timeout=45, check=False
    )
    assert (done.returncode, done.stderr) == (0, ""), done
    return done.stdout


BASH = """
complete -F others jupyter
others() { COMPREPLY=(of-others); }
eval "$(jupyter-gpushare completion bash)"
eval "$(jupyter-gpushare completion bash)"
try() {
    COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMPREPLY=()
    _jupyter_gpushare_of_jupyter jupyter "${COMP_WORDS[-1]}" "${COMP_WORDS[-2]}"
    echo "${COMPREPLY[*]}"
}
try jupyter gp
try jupyter lab --x
try jupyter gpushare wh
try jupyter gpushare queue --columns queue,po
"""


@pytest.mark.slow
def test_bash_completes_jupyter_gpushare_and_leaves_the_rest_to_others(tmp_path: Path) -> None:
    assert shell(tmp_path, "bash", "-c", BASH).splitlines() == [
        "of-others gpushare",
        "of-others",
        "whoami why what-if",
        "queue,pool",
    ]


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("fish") is None, reason="no fish here")
def test_fish_completes_both_spellings(tmp_path: Path) -> None:
    for program in ("jupyter gpushare", "jupyter-gpushare"):
        for line, expected in (
            ("usage --by p", {"person", "project"}),
            ("queue --columns queue,po", {"queue,pool"}),
        ):
            said = shell(
                tmp_path,
                "fish",
                "-c",
                f"jupyter-gpushare completion fish | source; complete -C '{program} {line}'",
            )
            assert {offer for offer in said.splitlines() if offer} == expected


ZSH = """
zmodload zsh/zpty
zpty z zsh -f -i
until_it_says() {
  local out all
  while zpty -r z out; do all+=$out; [[ $all == *$1* ]] && return; done
}
zpty -w z 'autoload -Uz compinit; compinit -u -D'
zpty -w z 'eval "$(jupyter-gpushare completion zsh)"; print "REA""DY"'
until_it_says READY
zpty -n -w z $'jupyter gpushare unco\\t\\C-Aprint got \\n'
until_it_says 'got jupyter gpushare uncordon'
print completed
zpty -d z
"""


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("zsh") is None, reason="no zsh here")
def test_zsh_completes_jupyter_gpushare(tmp_path: Path) -> None:
    assert shell(tmp_path, "zsh", "-f", "-c", ZSH) == "completed\n"


def test_the_group_offers_every_command(tmp_path: Path) -> None:
    assert completed(tmp_path, "gpushare ") == list(COMMANDS)
    assert gpushare("completion", "tcsh").status == 2
