"""What a person names for a command is opened with the rights of that person: working directory,
program, environment; not with those of an agent that runs as root.
"""

from __future__ import annotations

import asyncio
import json
import os
import pwd
import resource
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from node_agent.system.user_limits import user_limits
from tests.agent.commands import command_lease, finished
from tests.agent.shared_machine import Box, People, as_root, people
from tests.agent.simulated_node import play

__all__ = ["people"]

SECRET = "the secret of alice"
PYTHON = "/usr/bin/python3"
"""One that every user can run."""
needs_python = pytest.mark.skipif(not Path(PYTHON).exists(), reason=f"needs {PYTHON}")


@pytest.fixture
def home(people: People) -> Iterator[Path]:
    """Of alice, closed to others."""
    folder = Path(tempfile.mkdtemp(prefix="gpushare-home-"))
    (folder / "project").mkdir()
    (folder / "project/notes.txt").write_text(SECRET)
    program = folder / "project/program"
    program.write_text(f"#!/bin/sh\necho {SECRET}\n")
    program.chmod(0o755)
    for path in (folder, *folder.rglob("*")):
        os.chown(path, people.alice.pw_uid, people.alice.pw_gid)
    folder.chmod(0o700)
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def open_dir(people: People) -> Iterator[Path]:
    """Of bob."""
    folder = Path(tempfile.mkdtemp(prefix="gpushare-open-"))
    folder.chmod(0o755)
    os.chown(folder, people.bob.pw_uid, people.bob.pw_gid)
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


def run_as(people: People, name: str, argv: list[str], cwd: str, **env: str):
    """Run a command of this user; its end and its output."""
    result: list = []

    async def story():
        async with Box(people) as box:
            user = getattr(people, name)
            lease = command_lease(user=user.pw_name, argv=argv, cwd=cwd, env=env)
            result.extend(await finished(box, lease))

    play(story())
    return result


@as_root
@pytest.mark.parametrize("way", ["directly", "by a link", "below", "by a link to a parent"])
def test_a_working_directory_is_entered_with_the_rights_of_its_user(
    people: People, home: Path, open_dir: Path, way: str
):
    (open_dir / "link").symlink_to(home / "project")
    (open_dir / "parent").symlink_to(home)
    cwd = {
        "directly": home,
        "by a link": open_dir / "link",
        "below": home / "project",
        "by a link to a parent": open_dir / "parent/project",
    }[way]
    body, output = run_as(people, "bob", ["cat", "notes.txt"], str(cwd))
    assert body.exit_code == 126
    assert f"working directory {cwd}: Permission denied" in body.message
    assert SECRET not in output


@as_root
def test_her_own_directory_is_hers_to_enter(people: People, home: Path):
    body, output = run_as(people, "alice", ["cat", "notes.txt"], str(home / "project"))
    assert (body.exit_code, body.message, output) == (0, "", SECRET)


@as_root
def test_only_users_who_may_see_a_directory_learn_whether_it_exists(people: People, home: Path):
    """The agent itself can see both."""
    there, _ = run_as(people, "bob", ["true"], str(home / "project"))
    not_there, _ = run_as(people, "bob", ["true"], str(home / "other"))
    assert there.message.replace("project", "other") == not_there.message
    missing, _ = run_as(people, "alice", ["true"], str(home / "other"))
    assert "No such file or directory" in missing.message


@as_root
def test_a_program_is_opened_with_the_rights_of_its_user(
    people: People, home: Path, open_dir: Path
):
    (open_dir / "program").symlink_to(home / "project/program")
    for program in (home / "project/program", open_dir / "program"):
        body, output = run_as(people, "bob", [str(program)], "/")
        assert body.exit_code in (126, 127)
        assert SECRET not in output
    body, output = run_as(people, "alice", [str(home / "project/program")], "/")
    assert (body.exit_code, output) == (0, SECRET + "\n")


LIBRARY = r"""
#include <stdio.h>
#include <unistd.h>
__attribute__((constructor)) static void loaded(void) {
    FILE *file = fopen("%s", "a");
    if (file) { fprintf(file, "%%d %%d\n", (int)getuid(), (int)geteuid()); fclose(file); }
}
"""


@as_root
@needs_python
@pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")
def test_no_code_that_a_person_names_runs_with_the_rights_of_the_agent(
    people: People, open_dir: Path
):
    """Libraries and start-up files of the environment are for the command, not for its launcher."""
    library, seen = open_dir / "library.so", open_dir / "seen"
    source = open_dir / "library.c"
    source.write_text(LIBRARY % seen)
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source], check=True)
    startup = open_dir / "startup"
    startup.write_text(f"import os\nopen({str(seen)!r}, 'a').write(f'{{os.getuid()}} python\\n')\n")
    (open_dir / "sitecustomize.py").write_text(startup.read_text())
    for path in open_dir.iterdir():
        path.chmod(0o755)
    body, _ = run_as(
        people,
        "bob",
        [PYTHON, "-c", "pass"],
        str(open_dir),
        LD_PRELOAD=str(library),
        PYTHONPATH=str(open_dir),
        PYTHONSTARTUP=str(startup),
        ENV=str(startup),
        BASH_ENV=str(startup),
    )
    assert body.exit_code == 0
    users = {line.split()[0] for line in seen.read_text().splitlines()}
    assert users == {str(people.bob.pw_uid)}


@as_root
def test_a_link_that_is_swapped_all_the_time_lets_nobody_in(
    people: People, home: Path, open_dir: Path
):
    swap = (
        "import os, sys\n"
        "while True:\n"
        "    for target in sys.argv[2:]:\n"
        "        os.symlink(target, sys.argv[1] + '.new')\n"
        "        os.replace(sys.argv[1] + '.new', sys.argv[1])\n"
    )
    link = open_dir / "link"
    swapper = subprocess.Popen(
        [sys.executable, "-c", swap, str(link), str(open_dir), str(home / "project")]
    )
    try:

        async def story():
            async with Box(people) as box:
                ends = set()
                for number in range(12):
                    lease = command_lease(
                        f"w{number}",
                        user=people.bob.pw_name,
                        argv=["cat", "notes.txt"],
                        cwd=str(link),
                    )
                    body, output = await finished(box, lease)
                    assert SECRET not in output
                    ends.add(body.exit_code)
                assert ends <= {1, 126}, "in his own folder there are no notes"

        play(story())
    finally:
        swapper.kill()
        swapper.wait()


REPORT = (
    "import json, os, resource as r; print(json.dumps({"
    "'ids': os.getresuid() + os.getresgid(), 'groups': sorted(os.getgroups()),"
    "'umask': os.umask(0), 'files': r.getrlimit(r.RLIMIT_NOFILE),"
    "'fds': sorted(os.listdir('/proc/self/fd'))[:-1]}))"
)


@as_root
@needs_python
def test_a_command_has_the_ids_groups_and_limits_of_its_user(people: People):
    body, output = run_as(people, "bob", [PYTHON, "-c", REPORT], "/")
    assert body.exit_code == 0, (body, output)
    said, bob = json.loads(output), people.bob
    assert said["ids"] == [bob.pw_uid] * 3 + [bob.pw_gid] * 3
    assert said["groups"] == sorted(os.getgrouplist(bob.pw_name, bob.pw_gid))
    assert said["umask"] == 0o022
    assert said["fds"] == ["0", "1", "2"], "nothing of the agent is open in it"
    limits = user_limits(bob, os.getgrouplist(bob.pw_name, bob.pw_gid))
    highest = resource.getrlimit(resource.RLIMIT_NOFILE)[1]  # without the right to raise it
    assert said["files"] == [min(highest, limit) for limit in limits["RLIMIT_NOFILE"]]


@as_root
def test_the_files_of_a_command_are_closed_to_other_users(people: People):
    async def story():
        async with Box(people) as box:
            lease = command_lease(user=people.alice.pw_name, argv=["sh", "-c", "echo hi; sleep 60"])
            box.scheduler.grant_again(lease)
            await box.until(lambda: box.scheduler.output("w"), "it runs")
            run = box.agent.batch._runs["w"]
            assert stat.S_IMODE(run.folder.stat().st_mode) == 0o700
            assert run.folder.stat().st_uid == 0
            assert stat.S_IMODE(run.status_file.parent.stat().st_mode) == 0o700
            box.scheduler.leases.clear()
            box.agent.lifecycle.end_processes(box.record("w"))

    play(story())


CONF = """\
# a comment
* soft nofile 1000
* hard nofile 2000
@staff hard nofile 3000
ann - nofile 4000
* soft core unlimited
bob hard core 10 # in KiB
* - cpu 2
* - maxlogins 1
broken line
"""
INIT = """\
Limit                     Soft Limit           Hard Limit           Units
Max open files            1024                 524288               files
Max core file size        0                    unlimited            bytes
Max nice priority         0                    0
"""


@pytest.mark.parametrize(
    ("name", "files", "core"),
    [
        ("ann", (4000, 4000), (-1, -1)),
        ("bob", (1000, 2000), (10240, 10240)),
        ("eve", (1000, 2000), (-1, -1)),
    ],
)
def test_limits_are_those_of_a_login(tmp_path: Path, name: str, files, core):
    (tmp_path / "limits.d").mkdir()
    (tmp_path / "limits.conf").write_text(CONF)
    (tmp_path / "init").write_text(INIT)
    account = pwd.struct_passwd((name, "x", 4711, 4711, "", "/", "/bin/sh"))
    limits = user_limits(account, [4711], etc=tmp_path, init=tmp_path / "init")
    assert (limits["RLIMIT_NOFILE"], limits["RLIMIT_CORE"]) == (files, core)
    assert limits["RLIMIT_CPU"] == (120, 120)


def test_a_later_file_changes_limits_and_missing_files_change_none(tmp_path: Path):
    (tmp_path / "limits.d").mkdir()
    (tmp_path / "limits.conf").write_text("* - nofile 10\n")
    (tmp_path / "limits.d/50.conf").write_text("* - nofile 20\n")
    account = pwd.struct_passwd(("eve", "x", 4711, 4711, "", "/", "/bin/sh"))
    limits = user_limits(account, [], etc=tmp_path, init=tmp_path / "none")
    assert limits == {"RLIMIT_NOFILE": (20, 20)}
    assert user_limits(account, [], etc=tmp_path / "none", init=tmp_path / "none") == {}


def test_without_root_a_command_runs_as_the_agent():
    """And has everything that the agent has."""
    from tests.agent.simulated_node import World

    async def story():
        async with World() as world:
            me = pwd.getpwuid(os.geteuid()).pw_name
            lease = command_lease(user=me, argv=["sh", "-c", "id -u; pwd"], cwd="/tmp")
            body, output = await finished(world, lease)
            assert (body.exit_code, output) == (0, f"{os.geteuid()}\n/tmp\n")
            await asyncio.sleep(0)

    play(story())
