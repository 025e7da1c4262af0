"""The output of a command in the agent's state directory has a limit, per command and per user."""

from __future__ import annotations

import getpass
from pathlib import Path

from node_agent.reconcile import batch
from node_agent.reconcile.command_run import CommandRun
from tests.agent.commands import command_lease, finished
from tests.agent.simulated_node import World, play

MIB = 1 << 20
CUT = "the output is cut off here, at the limit of"


def run_of(folder: Path) -> CommandRun:
    return CommandRun(command_lease(user="u", argv=["true"]), folder, folder / "status")


def test_a_log_within_the_limit_is_left_alone(tmp_path: Path):
    run = run_of(tmp_path)
    with run.open_log() as log:
        log.write(b"x" * MIB)
    run.bound_log(MIB)
    assert run.log_size() == MIB
    assert run.log_end is None


def test_a_log_is_cut_off_with_a_line_that_says_so_and_never_grows_again(tmp_path: Path):
    run = run_of(tmp_path)
    with run.open_log() as log:
        for _ in range(5):
            log.write(b"x" * MIB)
            log.flush()
            run.bound_log(2 * MIB)
        size = run.log_size()
        assert 2 * MIB < size < 2 * MIB + 500
        assert run.log_file.stat().st_size == size
        run.acknowledged = 2 * MIB
        text = run.read_log(1000).decode()
        assert f"{CUT} 2 MiB per command" in text
        assert text.endswith("]\n")


def test_what_comes_after_the_cut_is_not_reported(tmp_path: Path):
    run = run_of(tmp_path)
    with run.open_log() as log:
        log.write(b"x" * (2 * MIB))
        log.flush()
        run.bound_log(MIB)
        log.write(b"late")
        log.flush()
        run.acknowledged = run.log_size()
        assert run.read_log(1000) == b""


def test_the_error_of_a_missing_program_shows_no_path_of_the_agent():
    async def story():
        async with World() as world:
            lease = command_lease(user=getpass.getuser(), argv=["no-such-program"])
            body, output = await finished(world, lease)
            assert body.exit_code == 127
            assert output.startswith("jupyter gpushare run: ")
            assert "no-such-program" in output
            assert str(world.state_dir) not in output

    play(story())


def test_a_command_that_prints_without_end_ends_with_its_exit_status(monkeypatch):
    monkeypatch.setattr(batch, "MIN_LOG_BYTES", 1 << 16)
    line = "0123456789" * 4
    script = f"i=0; while [ $i -lt 4000 ]; do echo {line}; i=$((i+1)); done; sleep 1; exit 5"

    async def story():
        async with World(command_log_mib=0, user_logs_mib=0) as world:
            lease = command_lease(user=getpass.getuser(), argv=["sh", "-c", script])
            body, output = await finished(world, lease)
            assert (body.exit_code, body.message) == (5, "")
            assert CUT in output
            assert len(output) < (1 << 16) + 500

    play(story())


def test_the_commands_of_one_user_share_a_limit():
    async def story():
        async with World(command_log_mib=64, user_logs_mib=8) as world:
            script = "head -c 20000000 /dev/zero; sleep 60"
            for number in range(4):
                lease = command_lease(
                    f"w{number}", user=getpass.getuser(), argv=["sh", "-c", script]
                )
                world.scheduler.acknowledges = False
                world.scheduler.grant_again(lease)
            runs = world.agent.batch._runs
            await world.until(lambda: sum(run.log_end is not None for run in runs.values()) >= 2)
            await world.until(
                lambda: all(run.log_file.stat().st_size <= 8 * MIB + 500 for run in runs.values())
            )
            for run in list(runs.values()):
                world.agent.lifecycle.end_processes(world.record(run.lease.id))
            await world.until(
                lambda: not any(one.process.main for one in world.agent.node.kernels.values())
            )

    play(story())
