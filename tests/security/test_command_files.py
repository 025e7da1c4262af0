"""Commands that name files and directories of other users: working directory, program, environment
and log. The operating system checks each with the rights of the command's own user.
"""

from __future__ import annotations

import os
import secrets
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.security.machine import Machine, as_root, eventually

pytestmark = [as_root, pytest.mark.slow, pytest.mark.timeout(180)]

SECRET = f"secret-{secrets.token_hex(8)}"
CANNOT_RUN = (126, 127)
SYSTEM_ACCOUNTS = ("daemon", "www-data", "nobody")


@pytest.fixture(scope="module")
def project(machine: Machine) -> Path:
    """Of alice, below her home, which is closed to others."""
    folder = machine.home("alice") / "project"
    folder.mkdir(mode=0o755)
    machine.give("alice", folder)
    machine.write("alice", folder / "notes.txt", SECRET)
    machine.write("alice", folder / "program", f"#!/bin/sh\necho {SECRET}\n", 0o755)
    return folder


@pytest.fixture(scope="module")
def links(machine: Machine, project: Path) -> Path:
    """A directory of bob with links to what alice has."""
    folder = machine.home("bob")
    for name, target in (("home", project.parent), ("project", project)):
        (folder / name).symlink_to(target)
    (folder / "chain").symlink_to(folder / "project")
    (folder / "program").symlink_to(project / "program")
    return folder


def test_alice_reads_her_own_files(machine: Machine, project: Path):
    """The counterpart of the refusals below."""
    end = machine.run("alice", ["cat", "notes.txt"], str(project))
    assert (end.exit_code, end.output) == (0, SECRET)
    end = machine.run("alice", [str(project / "program")])
    assert (end.exit_code, end.output.strip()) == (0, SECRET)


DIRECTORIES = {
    "home": "{home}",
    "below the home": "{home}/project",
    "with dots": "{bob}/../{alice}/project",
    "a link to the home": "{bob}/home",
    "below a link": "{bob}/home/project",
    "a link to a link": "{bob}/chain",
    "a root directory of alice's process": "/proc/self/root{home}/project",
}


@pytest.mark.parametrize("directory", DIRECTORIES.values(), ids=DIRECTORIES)
def test_a_working_directory_of_another_user_is_refused(
    machine: Machine, project: Path, links: Path, directory: str
):
    cwd = directory.format(home=project.parent, bob=links, alice=machine.name("alice"))
    end = machine.run("bob", ["cat", "notes.txt"], cwd)
    assert end.exit_code in CANNOT_RUN, end
    assert "Permission denied" in end.message
    assert SECRET not in end.output


def test_root_only_directories_are_refused(machine: Machine):
    """Of the agent itself: its state and its memory."""
    assert machine.agent is not None
    for cwd in (machine.folder / "agent-state", f"/proc/{machine.agent.pid}/fd"):
        end = machine.run("bob", ["ls"], str(cwd))
        assert end.exit_code in CANNOT_RUN, (cwd, end)


PROGRAMS = ("{project}/program", "{bob}/program", "{bob}/chain/program")


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_program_of_another_user_is_refused(
    machine: Machine, project: Path, links: Path, program: str
):
    end = machine.run("bob", [program.format(project=project, bob=links)])
    assert end.exit_code in CANNOT_RUN, end
    assert SECRET not in end.output


def test_a_search_path_reaches_no_programs_of_another_user(
    machine: Machine, project: Path, links: Path
):
    end = machine.run("bob", ["program"], PATH=f"{project}:{links}/chain:/usr/bin:/bin")
    assert end.exit_code in CANNOT_RUN, end
    assert SECRET not in end.output


WRITERS = {
    "a start-up file of the shell": ("ENV", "BASH_ENV"),
    "a home of another user": ("HOME", "XDG_CONFIG_HOME"),
    "start-up files of Python": ("PYTHONSTARTUP", "PYTHONPATH", "PYTHONHOME"),
    "a library": ("LD_PRELOAD", "LD_LIBRARY_PATH", "LD_AUDIT"),
}


@pytest.mark.parametrize("names", WRITERS.values(), ids=WRITERS)
def test_no_file_of_the_environment_is_opened_with_the_rights_of_the_agent(
    machine: Machine, project: Path, names: tuple[str, ...]
):
    env = dict.fromkeys(names, str(project / "notes.txt"))
    end = machine.run("bob", ["/bin/sh", "-c", "id -u; cat $HOME/notes.txt"], **env)
    assert SECRET not in end.output
    if end.output:
        assert str(machine.users["bob"].pw_uid) in end.output.split()


def test_variables_of_the_agent_cannot_be_set(machine: Machine):
    """The marker of a launch is how the agent finds the processes of a command."""
    fake = {"GPUSHARE_LAUNCH": "fake", "GPUSHARE_WORKLOAD": "fake", "GPUSHARE_POD": "fake"}
    id_ = machine.begin("bob", ["env"], **fake)
    end = machine.finish(id_)
    lines = dict(line.partition("=")[::2] for line in end.output.splitlines())
    assert lines["GPUSHARE_WORKLOAD"] == id_
    assert lines["GPUSHARE_LAUNCH"].startswith("batch.")
    assert lines["GPUSHARE_POD"] != "fake"


IDS = (
    'id -u; id -ru; id -g; id -G; umask; ls /proc/self/fd; grep -E "Cap(Prm|Eff)" /proc/self/status'
)


def test_a_command_has_no_rights_of_the_agent(machine: Machine):
    bob = machine.users["bob"]
    end = machine.run("bob", ["/bin/sh", "-c", IDS])
    lines = end.output.split("\n")
    groups = {str(group) for group in os.getgrouplist(bob.pw_name, bob.pw_gid)}
    assert lines[:3] == [str(bob.pw_uid), str(bob.pw_uid), str(bob.pw_gid)]
    assert set(lines[3].split()) == groups
    assert lines[4] in ("0022", "022")
    assert [line for line in lines if line.isdigit() and len(line) == 1][:4] == ["0", "1", "2", "3"]
    capabilities = [line.split()[1] for line in lines if line.startswith("Cap")]
    assert {int(text, 16) for text in capabilities} == {0}


@pytest.mark.parametrize(
    "user", ["root", "0", "../alice", "no-such-user", "nobody\n", *SYSTEM_ACCOUNTS]
)
def test_a_command_runs_as_no_user_but_its_submitter(machine: Machine, user: str):
    """An admin of the scheduler may submit for others, but gets no rights of root on a node."""
    command = {"argv": ["id", "-u"]}
    for other in (user, machine.name("alice")):
        assert machine.submit("bob", user=other, command=command).status == 403
    answer = machine.submit("lisa", user=user, project="language", command=command)
    if answer.status == 200:
        end = machine.finish(answer.json()["id"])
        assert end.exit_code in CANNOT_RUN, end
        assert end.output == ""


SWAP = """
import os, sys
link, *targets = sys.argv[1:]
while True:
    for target in targets:
        os.symlink(target, link + ".new")
        os.replace(link + ".new", link)
"""


@pytest.fixture
def swapped(machine: Machine, project: Path) -> Iterator[Path]:
    """A link that points to a directory of bob and to one of alice, in turn."""
    own = machine.folder / "own"
    own.mkdir(exist_ok=True)
    machine.write("bob", own / "program", "#!/bin/sh\ncat notes.txt\n", 0o755)
    link = machine.folder / "swapped"
    argv = [sys.executable, "-c", SWAP, str(link), str(own), str(project)]
    swapper = subprocess.Popen(argv)
    try:
        eventually(link.is_symlink, "the link exists")
        yield link
    finally:
        swapper.kill()
        swapper.wait()


def test_a_link_that_is_swapped_during_the_start_reaches_nothing(machine: Machine, swapped: Path):
    """As working directory and as part of the program's path."""
    ids = []
    for _ in range(8):
        ids.append(machine.begin("bob", ["cat", "notes.txt"], str(swapped)))
        ids.append(machine.begin("bob", [str(swapped / "program")], str(swapped)))
    for id_ in ids:
        end = machine.finish(id_)
        assert end.exit_code != 0
        assert SECRET not in end.output


def test_files_of_a_running_command_are_closed_to_other_users(machine: Machine):
    """The agent's log of it, and the file with its exit status."""
    id_ = machine.begin("alice", ["sh", "-c", f"echo {SECRET}; exec sleep 60"])
    eventually(lambda: SECRET in machine.output(id_), "it has printed")
    look = f"cat {machine.folder}/agent-state/batch/*/log; ls /run/gpushare; cat /run/gpushare/*/*"
    end = machine.run("bob", ["sh", "-c", look])
    assert SECRET not in end.output
    for path in Path("/run/gpushare").iterdir():
        if path.stat().st_uid == machine.users["alice"].pw_uid:
            assert stat.S_IMODE(path.stat().st_mode) == 0o700
    machine.end(id_)


REPLACED_STATUS = """
set -e
for folder in /run/gpushare/*; do
    if [ -O "$folder" ]; then cd "$folder"; fi
done
rm -rf status error
{}
kill -9 $PPID
"""
REPLACEMENTS = {
    "a link to a secret": "ln -s {secret} error; ln -s {secret} status",
    "a pipe": "mkfifo status error",
    "a directory": "mkdir status error",
    "a long text": "yes 126 | head -c 5000000 > status; yes lie | head -c 5000000 > error",
    "a link to a device": "ln -s /dev/zero status; ln -s /dev/zero error",
    "control characters": r"printf 126 > status; printf 'a\033[2Jb\nforged line' > error",
}


@pytest.mark.parametrize("replace", REPLACEMENTS.values(), ids=REPLACEMENTS)
def test_a_replaced_exit_status_deceives_only_its_user(
    machine: Machine, project: Path, replace: str
):
    """The file is the user's own; the agent reads it as root, and must not follow or wait."""
    script = REPLACED_STATUS.format(replace.format(secret=project / "notes.txt"))
    end = machine.run("bob", ["/bin/sh", "-c", script])
    assert end.exit_code != 0
    assert SECRET not in end.message
    assert len(end.message) < 1000
    assert end.message.isprintable()
    assert machine.run("alice", ["true"]).exit_code == 0


def test_signals_of_another_user_do_not_reach_a_command(machine: Machine):
    id_ = machine.begin("alice", ["sleep", "60"])
    pid = eventually(lambda: _pid_of(id_), "it runs")
    end = machine.run("bob", ["kill", f"-{signal.SIGKILL.value}", str(pid)])
    assert end.exit_code != 0
    assert machine.workload(id_)["state"] == "running"
    assert machine.call("bob", "DELETE", f"/api/v1/workloads/{id_}").status == 404
    machine.end(id_)


def _pid_of(id_: str) -> int | None:
    mark = f"GPUSHARE_WORKLOAD={id_}".encode()
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            found = mark in (folder / "environ").read_bytes().split(b"\0")
        except OSError:
            continue
        if found and (folder / "comm").read_text() == "sleep\n":
            return int(folder.name)
    return None
