"""Which accounts are those of people."""

from __future__ import annotations

import pwd
from pathlib import Path

import pytest

from node_agent.reconcile.command_start import command_user
from node_agent.state.config import AgentConfig
from node_agent.system.accounts import is_system_account
from tests.security.machine import as_root


def account(uid: int, name: str = "x") -> pwd.struct_passwd:
    return pwd.struct_passwd((name, "x", uid, uid, "", "/", "/bin/sh"))


FILES = {
    "with the default": ("UID_MIN\t\t\t 1000\n", 1000),
    "with another number": ("# UID_MIN 5\nSYS_UID_MIN 100\nUID_MIN 500 # people\n", 500),
    "hexadecimal": ("UID_MIN 0x3e8\n", 1000),
    "without a number": ("UID_MIN many\n", 1000),
    "without the line": ("UMASK 022\n", 1000),
    "that is not text": ("UID_MIN \udcff\n", 1000),
    "that does not exist": (None, 1000),
}


@pytest.mark.parametrize(("text", "first"), FILES.values(), ids=FILES)
def test_people_have_ids_from_the_first_of_the_file(tmp_path: Path, text: str | None, first: int):
    file = tmp_path / "login.defs"
    if text is not None:
        file.write_text(text, errors="surrogateescape")
    assert is_system_account(account(first - 1), file)
    assert not is_system_account(account(first), file)
    assert is_system_account(account(65534), file), "nobody"


@as_root
def test_listed_system_accounts_run_commands(tmp_path: Path):
    config = AgentConfig("n0", tmp_path, users="all", run_commands="users")
    with pytest.raises(PermissionError, match="no commands of system account 'daemon'"):
        command_user("daemon", config)
    listed = AgentConfig(
        "n0", tmp_path, users="all", run_commands="users", command_accounts=("daemon", "root")
    )
    assert command_user("daemon", listed) == pwd.getpwnam("daemon")
    with pytest.raises(PermissionError):
        command_user("root", listed)
