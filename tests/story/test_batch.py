"""Batch jobs beside notebooks: commands run on the machine of the agent with the same quotas, with
logs and exit statuses.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from pathlib import Path

import pytest

from jupyter_gpushare import messages as m
from jupyter_gpushare.core.model.errors import GpuShareError, NotFound
from tests.story.batch_lab import TIMEOUT_S, Lab, is_alive, story

pytestmark = pytest.mark.slow


def test_a_command_runs_with_its_share_and_returns_output_and_status(tmp_path: Path):
    script = (
        '"$PYTHON" -c "from jupyter_gpushare import simgpu; '
        "print(simgpu.alloc('3GiB').nbytes >> 30, simgpu.memory_info()[1] >> 30)\";"
        " pwd; echo grüße; echo oops >&2; exit 7"
    )

    async def scenario(here: Lab) -> None:
        await here.submit(script, gpu=0.5)
        view = await here.over()
        assert (view.exit_code, view.message) == (7, "Pod 0 failed with exit code 7.")
        assert await here.printed() == f"3 80\n{tmp_path}\ngrüße\noops\n"
        assert [one.id for one in (await here.client.workloads(ended=True)).workloads] == ["w"]
        assert (await here.client.logs("w", cursor=10**6)).is_over

    story(tmp_path, scenario)


def test_pods_above_the_minimum_start_when_there_is_capacity(tmp_path: Path):
    async def scenario(here: Lab) -> None:
        await here.submit(
            "echo $GPUSHARE_POD >> began; while [ ! -f go$GPUSHARE_POD ]; do sleep 0.05; done",
            pods=3,
            min_pods=2,
        )
        view = await here.until("w", lambda view: view.state == "partial")
        assert sum(pod.state == "pending" for pod in view.pods) == 1
        assert {pod.name for pod in view.pods if pod.state != "pending"} == {"0", "1"}
        (tmp_path / "go0").touch()
        while sorted((await here.file("began")).split()) != ["0", "1", "2"]:
            await asyncio.sleep(0.05)
        (tmp_path / "go1").touch()
        (tmp_path / "go2").touch()
        view = await here.over()
        assert view.exit_code == 0
        assert [pod.exit_code for pod in view.pods] == [0, 0, 0]

    story(tmp_path, scenario)


def test_a_failing_pod_ends_the_others(tmp_path: Path):
    async def scenario(here: Lab) -> None:
        await here.submit(
            "if [ $GPUSHARE_POD = 1 ]; then exit 4; fi; echo $$ > pid; sleep 600", pods=2
        )
        assert (await here.over()).exit_code == 4
        pid = int(await here.file("pid"))
        deadline = time.monotonic() + TIMEOUT_S
        while is_alive(pid):
            assert time.monotonic() < deadline
            await asyncio.sleep(0.05)

    story(tmp_path, scenario)


def test_an_over_quota_command_gets_sigterm_and_runs_again(tmp_path: Path):
    """It is evicted for a project within its quota, after SIGTERM, and runs again when there is
    capacity.
    """

    async def scenario(here: Lab) -> None:
        await here.submit(
            "echo start >> runs; trap 'echo asked >> runs; exit 0' TERM; "
            "while :; do sleep 0.05; [ -f done ] && exit 0; done",
            "night",
            pods=1,
            gpu=2,
            project="night",
        )
        assert await here.file("runs") == "start\n"
        await here.submit("sleep 600", "day", gpu=2)
        await here.until("day", lambda view: view.state == "running")
        assert (tmp_path / "runs").read_text() == "start\nasked\n"
        notices = [
            one.message
            for one in here.server._server.service.unit_of_work.records["night"].events
            if one.kind == "notice"
        ]
        assert notices
        assert all("from SIGTERM to save" in said and "0 MiB" not in said for said in notices), (
            notices
        )
        waiting = await here.until(
            "night", lambda view: view.state == "pending" and view.reason is not None
        )
        assert waiting.reason.code.startswith("Waiting")
        await here.client.end("day")
        while (tmp_path / "runs").read_text().count("start") < 2:
            await asyncio.sleep(0.05)
        (tmp_path / "done").touch()
        assert (await here.over("night")).exit_code == 0

    story(tmp_path, scenario)


def test_a_workload_cancelled_before_its_command_starts_gets_sigterm_afterwards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Otherwise the surrounding shell would consume the signal and start the command."""
    from node_agent.reconcile import command_start

    slow = command_start.SHELL.replace('"$@"', f'while [ ! -e {tmp_path}/go ]; do :; done; "$@"', 1)
    assert slow != command_start.SHELL
    monkeypatch.setattr(command_start, "SHELL", slow)

    async def scenario(here: Lab) -> None:
        await here.submit("trap 'echo asked > asked; exit 0' TERM; while :; do sleep 0.05; done")
        await here.until("w", lambda view: view.state == "running")
        node, runs = here.server._agent.node, here.server._agent.batch._runs
        while not any(kernel.process.main is not None for kernel in node.kernels.values()):
            await asyncio.sleep(0.01)
        await here.client.end("w")
        run = next(iter(runs.values()))
        while run.kill_at is None:
            await asyncio.sleep(0.01)
        (tmp_path / "go").touch()
        assert await here.file("asked") == "asked\n"

    story(tmp_path, scenario)


def test_events_of_an_evicted_command_do_not_mention_saved_memory(tmp_path: Path):
    async def scenario(here: Lab) -> None:
        await here.submit(
            "trap '' TERM; echo start >> runs; while [ ! -f done ]; do sleep 0.05; done",
            "night",
            gpu=2,
            project="night",
        )
        assert await here.file("runs") == "start\n"
        await here.submit("sleep 600", "day", gpu=2)
        await here.until("day", lambda view: view.state == "running")
        said = [
            one.message for one in here.server._server.service.unit_of_work.records["night"].events
        ]
        assert not [one for one in said if "saved" in one or "kernel" in one or "0 MiB" in one], (
            said
        )
        await here.client.end("day")
        while (tmp_path / "runs").read_text().count("start") < 2:
            await asyncio.sleep(0.05)
        (tmp_path / "done").touch()
        assert (await here.over("night")).exit_code == 0

    story(tmp_path, scenario)


def test_a_pod_evicted_after_others_of_its_gang_succeeded_runs_again(tmp_path: Path):
    script = (
        "echo start$GPUSHARE_POD >> runs; [ $GPUSHARE_POD = 0 ] && exit 0; trap 'exit 1' TERM; "
        "while [ ! -f done ]; do sleep 0.05; done"
    )

    async def scenario(here: Lab) -> None:
        await here.submit(script, "gang", pods=2, gpu=1, project="night")
        await here.until(
            "gang",
            lambda view: (
                [pod.exit_code for pod in view.pods] == [0, None]
                and "start1" in (tmp_path / "runs").read_text()
            ),
        )
        await here.submit("sleep 600", "day", gpu=2)
        waiting = await here.until(
            "gang", lambda view: view.pods[1].state == "pending" or view.state == "ended"
        )
        assert waiting.state == "pending", waiting
        await here.until("day", lambda view: view.state == "running")
        await here.down()
        await here.up()
        await here.client.end("day")
        while (tmp_path / "runs").read_text().count("start1") < 2:
            await asyncio.sleep(0.05)
        (tmp_path / "done").touch()
        assert (await here.over("gang")).exit_code == 0
        assert (tmp_path / "runs").read_text().count("start0") == 1, (
            "the succeeded pod does not run again"
        )

    story(tmp_path, scenario)


def test_cancelling_ends_the_whole_process_tree(tmp_path: Path):
    async def scenario(here: Lab) -> None:
        await here.submit("trap '' TERM; setsid sleep 611 & echo $! > pid; sleep 612")
        pid = int(await here.file("pid"))
        await here.client.end("w")
        deadline = time.monotonic() + TIMEOUT_S
        while is_alive(pid):
            assert time.monotonic() < deadline
            await asyncio.sleep(0.05)
        assert (await here.over()).exit_code is None

    story(tmp_path, scenario)


def test_a_command_survives_its_agent_with_output_and_status(tmp_path: Path):
    async def scenario(here: Lab) -> None:
        await here.submit(
            "echo one; echo x > began; while [ ! -f go ]; do sleep 0.05; done; echo two", "slow"
        )
        await here.submit(
            "echo a; echo x > began2; while [ ! -f go2 ]; do sleep 0.05; done; echo b; exit 9; ",
            "quick",
        )
        await here.file("began")
        await here.file("began2")
        await here.down()
        (tmp_path / "go2").touch()
        await asyncio.sleep(0.5)
        await here.up()
        assert (await here.over("quick")).exit_code == 9
        assert await here.printed("quick") == "a\nb\n"
        (tmp_path / "go").touch()
        assert (await here.over("slow")).exit_code == 0
        assert await here.printed("slow") == "one\ntwo\n"

    story(tmp_path, scenario)


def test_a_cancelled_command_ends_after_a_restart_of_its_agent(tmp_path: Path):
    async def scenario(here: Lab) -> None:
        await here.submit("trap '' TERM; echo $$ > pid; while :; do sleep 0.1; done")
        pid = int(await here.file("pid"))
        await here.client.end("w")
        await asyncio.sleep(1)  # the agent knows, and would kill the command four seconds later
        await here.down()
        assert is_alive(pid)
        await here.up()
        deadline = time.monotonic() + TIMEOUT_S
        while is_alive(pid):
            assert time.monotonic() < deadline
            await asyncio.sleep(0.05)
        while [*(tmp_path / "state").rglob("batch/*")]:
            assert time.monotonic() < deadline
            await asyncio.sleep(0.05)

    story(tmp_path, scenario)


def test_a_node_refuses_commands_of_other_users_by_default(tmp_path: Path):
    async def scenario(here: Lab) -> None:
        await here.submit("echo never", user="another-user")
        view = await here.over()
        assert view.exit_code == 126
        assert "another-user" in view.message
        await here.client.submit(
            m.WorkloadRequest(
                id="lost",
                pods=[m.PodRequest()],
                project="vision",
                command=m.CommandRequest(argv=["true"], cwd="/no/such/place"),
            )
        )
        assert "/no/such/place" in (await here.over("lost")).message

    story(tmp_path, scenario)


def test_invalid_commands_are_refused_with_the_field(tmp_path: Path):
    cases = {
        "command.argv": m.CommandRequest(argv=[]),
        "command.cwd": m.CommandRequest(argv=["true"], cwd="here"),
        "command.env": m.CommandRequest(argv=["true"], env={"A=B": "1"}),
        "command": m.CommandRequest(argv=["true\x00"]),
    }

    async def scenario(here: Lab) -> None:
        for field, command in cases.items():
            with pytest.raises(GpuShareError) as refused:
                await here.client.submit(
                    m.WorkloadRequest(
                        id="x", project="vision", pods=[m.PodRequest()], command=command
                    )
                )
            assert refused.value.field == field
        with pytest.raises(NotFound):
            await here.client.logs("x")

    story(tmp_path, scenario)


def test_the_command_line_runs_lists_and_cancels(tmp_path: Path):
    async def scenario(here: Lab) -> None:
        async def call(*argv: str) -> tuple[int, str, str]:
            environment = {**os.environ, "GPUSHARE_STATE": str(here.folder / "state")}
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "jupyter_gpushare.cli",
                *argv,
                stdout=-1,
                stderr=-1,
                env=environment,
                cwd=tmp_path,
            )
            out, err = await asyncio.wait_for(process.communicate(), TIMEOUT_S)
            return process.returncode, out.decode(), err.decode()

        code, out, err = await call(
            "run",
            "--project",
            "vision",
            "--gpu",
            "0.5",
            "--env",
            "WORD=hello",
            "--",
            "sh",
            "-c",
            "echo $WORD; pwd; exit 3",
        )
        assert (code, out) == (3, f"hello\n{tmp_path}\n"), err
        assert "running on" in err or "failed" in err
        code, out, _ = await call(
            "run", "--project", "vision", "--pods", "2", "--", "sh", "-c", "echo pod $GPUSHARE_POD"
        )
        assert (code, sorted(out.splitlines())) == (0, ["[0] pod 0", "[1] pod 1"])
        code, id_, _ = await call(
            "run", "--project", "vision", "--gpu", "1", "--detach", "--", "sleep", "600"
        )
        assert code == 0
        assert "sleep 600" in (await call("list"))[1]
        assert (await call("cancel", id_.strip()))[0] == 0
        listed = json.loads((await call("list", "--all", "--json"))[1])
        assert [one["state"] for one in listed if one["id"] == id_.strip()] == ["ended"]
        code, _, err = await call("run", "--project", "nowhere", "--", "true")
        assert (code, err.count("\n")) == (2, 1)
        assert "nowhere" in err

    story(tmp_path, scenario)
