"""Two real unix users with a Jupyter server each, one scheduler on a socket, one agent of root:
they share a GPU and nothing else.
"""

from __future__ import annotations

import json
import os
import pwd
import secrets
import shutil
import site
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.story.front_end import TOKEN, Notebook, Rest, eventually
from tests.workers import add_unix_user, free_port, remove_unix_user

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]
ROOT = Path(__file__).parents[2]
CLI = (sys.executable, "-m", "jupyter_gpushare.cli")


def others_python() -> str | None:
    """A Python of our version that every user can run: that of a virtual environment may be in the
    home of root.
    """
    version = f"python3.{sys.version_info.minor}"
    for found in (sys.executable, shutil.which(version, path="/usr/local/bin:/usr/bin")):
        if found and os.getuid() == 0:
            tried = (
                subprocess.run(
                    [found, "-c", ""], check=False, capture_output=True, user="nobody", cwd="/"
                )
                if can_be_run(found)
                else None
            )
            if tried is not None and tried.returncode == 0:
                return found
    return None


def can_be_run(program: str) -> bool:
    return all(above.stat().st_mode & 0o001 for above in Path(program).resolve().parents)


PYTHON = others_python()
needs = pytest.mark.skipif(
    os.getuid() != 0 or PYTHON is None, reason="requires root, and a Python that every user can run"
)


class Box:
    """The machine. `servers` and `names` are in the same order."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.public = folder, folder / "public"
        self.names = [f"gs-{who}-{secrets.token_hex(2)}" for who in ("alice", "bob")]
        self.processes: list[subprocess.Popen] = []
        self.hub_names: dict[str, str] = {}
        """Unix user -> name at a JupyterHub that starts the servers."""
        packages = os.pathsep.join([str(ROOT), *site.getsitepackages()])
        self.env = {
            "PATH": os.environ["PATH"],
            "PYTHONPATH": packages,
            "LANG": "C.UTF-8",
            "STORY_WORLD": str(folder),
        }

    def up(self, persons: tuple[str, ...] = ()) -> list[Rest]:
        """`persons`: the names at the scheduler, if the servers have personal tokens."""
        policy, address = self.folder / "gpushare.yaml", f"unix://{self.folder}/scheduler.sock"
        policy.write_text(
            f"projects: [{{name: lab, members: {json.dumps([*self.names, *persons])}, "
            "pools: {default: {gpu: {quota: 1}}}}]\n"
        )
        self._start(
            "scheduler",
            self.env,
            *CLI,
            "scheduler",
            "--state-dir",
            f"{self.folder}/s",
            "--policy",
            str(policy),
            "--socket",
            address[7:],
        )
        eventually(Path(address[7:]).exists, "the scheduler listens", 60)
        state = (
            "--state-dir",
            f"{self.folder}/a",
            "--socket",
            f"{self.public}/agent.sock",
            "--scheduler",
            address,
        )
        self._agent = (*CLI, "agent", "--users", "all", "--simulate", "A100:1", *state)
        self._start("agent", self.env, *self._agent)
        tokens = [self._token(person, address) for person in persons] or [None, None]
        servers = [
            self._jupyter(name, address, token)
            for name, token in zip(self.names, tokens, strict=True)
        ]
        for server in servers:
            eventually(
                lambda: (
                    server.status()["agent"]["reachable"]  # noqa: B023
                    and server.status()["scheduler"]["reachable"]  # noqa: B023
                ),
                "reachable",
                90,
            )
            # called at once
            eventually(lambda: len(server.devices()) == 1, "the node is known")  # noqa: B023
        return servers

    def restart_agent(self) -> None:
        agent = self.processes[1]
        agent.terminate()
        agent.wait(20)
        self.processes.remove(agent)
        self._start("agent", self.env, *self._agent)

    def _token(self, person: str, address: str) -> str:
        argv = (*CLI, "token", "create", person, "--scope", "person", "--scheduler", address)
        made = subprocess.run(
            argv, check=True, capture_output=True, text=True, env=self.env, cwd="/"
        )
        return next(word for word in made.stdout.split() if word.startswith("gpushare_"))

    def _jupyter(self, name: str, address: str, token: str | None) -> Rest:
        home = self.folder / name
        add_unix_user(name, "--home-dir", str(home), "--no-create-home")
        for part in ("config", "notebooks", "data/kernels/half"):
            (home / part).mkdir(parents=True)
        argv = [PYTHON, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
        spec = {"argv": argv, "display_name": "half", "language": "python"}
        spec["metadata"] = {
            "kernel_provisioner": {
                "provisioner_name": "gpushare-provisioner",
                "config": {"gpu": 0.5},
            }
        }
        (home / "data/kernels/half/kernel.json").write_text(json.dumps(spec))
        port = free_port()
        config = {
            "ServerApp": {
                "jpserver_extensions": {"jupyter_gpushare": True},
                "port": port,
                "port_retries": 0,
                "root_dir": f"{home}/notebooks",
            },
            "IdentityProvider": {"token": TOKEN},
            "GpuShareExtension": {
                "scheduler_url": address,
                "agent_socket": f"{self.public}/agent.sock",
                **({"scheduler_token_file": f"{home}/token"} if token else {}),
            },
        }
        if token:
            (home / "token").write_text(token)
            (home / "token").chmod(0o600)
        (home / "config/jupyter_server_config.json").write_text(json.dumps(config))
        user = pwd.getpwnam(name)
        subprocess.run(["chown", "-R", f"{user.pw_uid}:{user.pw_gid}", home], check=True)
        folders = {
            "JUPYTER_CONFIG_DIR": "config",
            "JUPYTER_DATA_DIR": "data",
            "JUPYTER_RUNTIME_DIR": "run",
            "IPYTHONDIR": "ipython",
            "HOME": "",
        }
        env = self.env | {key: str(home / part) for key, part in folders.items()} | {"USER": name}
        if name in self.hub_names:  # as The Littlest JupyterHub: `jupyter-ada` is `ada` there
            env |= {"JUPYTERHUB_USER": self.hub_names[name], "JUPYTERHUB_API_TOKEN": "hub-token"}
        self._start(
            name,
            env,
            str(PYTHON),
            "-m",
            "jupyter_server",
            "--no-browser",
            user=user.pw_uid,
            group=user.pw_gid,
            extra_groups=[],
        )
        return Rest(port)

    def _start(self, log: str, env: dict[str, str], *argv: str, **who: object) -> None:
        with (self.folder / f"{log}.log").open("ab") as file:
            made = subprocess.Popen(
                argv,
                stdout=file,
                stderr=file,
                stdin=subprocess.DEVNULL,
                cwd="/",
                env=env,
                start_new_session=True,
                **who,
            )
        self.processes.append(made)

    def down(self) -> None:
        for process in reversed(self.processes):  # the servers first, to end their kernels
            process.terminate()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        for name in self.names:
            remove_unix_user(name)

    def logs(self) -> str:
        return "\n".join(
            f"==== {path.name}\n{path.read_text(errors='replace')[-6000:]}"
            for path in sorted(self.folder.glob("*.log"))
        )


@pytest.fixture
def box() -> Iterator[Box]:
    # Directories of pytest are accessible to their owner only.
    with tempfile.TemporaryDirectory(prefix="gpushare-box-") as folder:
        Path(folder).chmod(0o755)
        made = Box(Path(folder))
        try:
            yield made
        finally:
            made.down()
            sys.stdout.write(made.logs())  # shown when a test fails


@needs
def test_two_users_of_one_machine_share_its_gpu(box: Box):
    hers, his = box.up()
    alice, bob = Notebook(hers, "half", "alice.ipynb"), Notebook(his, "half", "bob.ipynb")
    alice.until("attached")
    uid = "import os; from jupyter_gpushare import simgpu; print(os.getuid())"
    assert alice.ok(f"{uid}; b = simgpu.alloc('70GiB'); b.fill(3)").strip() == str(
        pwd.getpwnam(box.names[0]).pw_uid
    )
    bob.until("attached")
    assert str(pwd.getpwnam(box.names[1]).pw_uid) in bob.ok(f"{uid}; b = simgpu.alloc('40GiB')")
    alice.until("suspended")
    bob.ok("b.free()")
    assert alice.ok("print(b.sum() / b.nbytes)").strip().endswith("3.0")
    for server, own, other in ((hers, alice, bob), (his, bob, alice)):
        assert [kernel["kernel_id"] for kernel in server.status()["kernels"]] == [own.kernel_id]
        token = f"{box.public}/tokens/{other.kernel_id}"
        assert "Permission denied" in tried(own, f"open({token!r})")
    for notebook in (alice, bob):
        notebook.shut_down()  # with the connection of its page
    eventually(lambda: hers.allocated() == 0, "nothing is allocated")
    eventually(lambda: not list((box.public / "tokens").iterdir()), "no token is left")


@needs
def test_users_with_personal_tokens_of_other_names_than_their_accounts(box: Box):
    hers, his = box.up(("ada.lovelace", "b.smith"))
    assert hers.status()["user"] == "ada.lovelace"
    alice, bob = Notebook(hers, "half", "alice.ipynb"), Notebook(his, "half", "bob.ipynb")
    for notebook in (alice, bob):
        notebook.until("attached")
        notebook.ok("from jupyter_gpushare import simgpu; b = simgpu.alloc('30GiB')")
    box.restart_agent()
    for notebook in (alice, bob):
        assert notebook.ok("b.fill(3); print(b.sum() / b.nbytes)").strip().endswith("3.0")
        notebook.until("attached")
    log = (box.folder / "scheduler.log").read_text()
    assert "does not belong to" not in log
    assert log.count("requested") == 2


def tried(notebook: Notebook, code: str) -> str:
    """Output of a cell that evaluates the code, or its error."""
    return notebook.ok(f"try:\n    print({code})\nexcept OSError as error:\n    print(error)")


@needs
def test_servers_of_a_hub_with_other_names_than_their_accounts(box: Box):
    """The scheduler's socket authenticates the account; the Hub's name and token do not matter."""
    box.hub_names = dict(zip(box.names, ("ada", "bob"), strict=True))
    servers = box.up()
    assert [server.status()["user"] for server in servers] == box.names
    for server in servers:
        notebook = server.notebook("half", "a.ipynb")
        notebook.until("attached")
        notebook.ws.close()
