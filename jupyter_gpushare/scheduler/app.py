"""The scheduler service as a program: its configuration the Jupyter way, its start, its signals, its end."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

from jupyter_core.application import JupyterApp
from jupyter_core.paths import jupyter_data_dir
from traitlets import Bool, Dict, Float, Integer, List, TraitError, Unicode, default

from jupyter_gpushare.core.errors import GpuShareError, InvalidInput

from .house import House
from .limits import GENEROUS, Limits
from .listening import Address, Listening
from .store import Retention
from .peers import PeerUsers

__all__ = ["SchedulerApp", "state_directory"]

PORT: Final = 8470
DAY_MS: Final = 24 * 3600 * 1000


def state_directory() -> Path:
    """Where scheduler and agent keep what they must not forget, unless somebody said otherwise."""
    return Path(os.environ.get("GPUSHARE_STATE") or Path(jupyter_data_dir()) / "gpushare")


class SchedulerApp(JupyterApp):
    """The scheduler service of a cluster or a shared machine."""

    name = "jupyter-gpushare-scheduler"
    config_file_name = Unicode("jupyter_gpushare_config")

    host = Unicode("127.0.0.1", config=True, help="Address to listen on; 0.0.0.0 for every network of this machine.")
    port = Integer(PORT, config=True, help="Port to listen on; 0: any free one.")
    certfile = Unicode("", config=True, help="TLS certificate (PEM). Without one, put the service behind something that has one.")
    keyfile = Unicode("", config=True, help="Key of the certificate, when it is not in the same file.")
    client_ca = Unicode("", config=True, help="Certificates (PEM) of who signs those of agents: with it, an agent shows one for its node.")
    socket = Unicode("", config=True, help="Unix socket to listen on: callers are their unix user. Without host or port, nothing else.")
    socket_mode = Integer(0o666, config=True, help="Who may connect to the unix socket, as permissions of a file.")
    admin_users = List(Unicode(), config=True, help="Unix users (and `group:NAME`) who are admins on the socket, beside root and the service's own.")
    calls_per_second = Float(GENEROUS.calls_per_s, min=0, config=True, help="Calls per second that one caller may make; 0: any number.")
    calls_at_once = Integer(GENEROUS.calls_at_once, min=1, config=True, help="Calls that a caller who was quiet may make at once.")
    body_bytes = Integer(GENEROUS.body_bytes, min=1024, config=True, help="The largest body of a call.")
    frames_per_second = Float(GENEROUS.frames_per_s, min=0, config=True, help="Frames per second that one link of an agent may send; 0: any number.")
    frame_bytes = Integer(GENEROUS.frame_bytes, min=1024, config=True, help="The largest frame on a WebSocket.")
    state_dir = Unicode(config=True, help="Where store and admin's token are; default: $GPUSHARE_STATE or gpushare/ in Jupyter's data.")
    db_url = Unicode("", config=True, help="Database of the store, as SQLAlchemy has it; default: SQLite in the state directory.")
    policy_file = Unicode("", config=True, help="The administrator's policy (gpushare.yaml). Read again when it changes, and at SIGHUP.")
    token_file = Unicode("", config=True, help="File with the admin's token, made if absent; default: admin.token in the state directory.")
    retention_days = Integer(90, min=1, config=True, help="For how many days workloads that have ended are remembered.")
    event_retention_days = Integer(90, min=1, config=True, help="For how many days what happened to them is remembered.")
    usage_retention_days = Integer(400, min=1, config=True, help="For how many days it is remembered who held and used what.")
    protect_metrics = Bool(False, config=True, help="Whether /metrics needs a token too.")
    groups = Dict(List(Unicode()), config=True, help="Members of the groups that the policy names: {'vision': ['alice']}.")

    @default("state_dir")
    def _state_dir_default(self) -> str:
        return str(state_directory())

    def read_configuration(self) -> None:
        """Reads `config_file`, or what Jupyter's directories have. Raises InvalidInput."""
        self.log.addFilter(lambda record: not str(record.msg).startswith("Bad config"))  # `exit` says it
        try:
            self.initialize([])
        except GpuShareError:
            raise
        except Exception as error:  # the file is Python and may raise anything
            raise InvalidInput(f"the configuration cannot be read: {error}", field=self.config_file or None) from error

    def exit(self, exit_status: int | str | None = 0) -> None:
        """Traitlets ends the process over a bad value, after a line in the log; a caller of ours gets an error like every other."""
        error = sys.exc_info()[1]
        if isinstance(error, TraitError):
            raise InvalidInput(f"the configuration cannot be used: {error}", field=self.config_file or None) from error
        super().exit(exit_status)

    def house(self) -> House:
        """What is configured. Raises GpuShareError."""
        return House(
            Path(self.state_dir),
            policy_file=Path(self.policy_file) if self.policy_file else None,
            db_url=self.db_url or None,
            retention=Retention(self.retention_days * DAY_MS, self.event_retention_days * DAY_MS, self.usage_retention_days * DAY_MS),
            groups_of=self._groups_of,
            open_metrics=not self.protect_metrics,
            limits=Limits(
                calls_per_s=self.calls_per_second,
                calls_at_once=self.calls_at_once,
                body_bytes=self.body_bytes,
                frames_per_s=self.frames_per_second,
                frame_bytes=self.frame_bytes,
            ),
        )

    def _groups_of(self, user: str) -> tuple[str, ...]:
        return tuple(sorted(group for group, members in self.groups.items() if user in members))

    def address(self) -> Address:
        """Where to listen."""
        stated = self.config.SchedulerApp
        only_socket = bool(self.socket) and "port" not in stated and "host" not in stated
        return Address(
            self.host, None if only_socket else self.port, self.certfile, self.keyfile, self.client_ca,
            socket=Path(self.socket) if self.socket else None,
            socket_mode=self.socket_mode,
            token_file=Path(self.token_file) if self.token_file else None,
        )  # fmt: skip

    async def serve(self, say: Callable[[str], None]) -> None:
        """Runs until SIGINT or SIGTERM. `say` is told once, when calls are answered and decisions are made. Raises GpuShareError."""
        over = asyncio.Event()
        house = self.house()
        house.callers.peers = PeerUsers(self.admin_users, self._groups_of)
        try:
            listening = Listening(house, self.address(), Path(self.state_dir))
        except BaseException:
            await house.stop()
            raise
        try:
            house.start()
            self._signals(over, house)
            await house.decided.wait()
            listening.leave_note()
            urls = " and ".join(dict.fromkeys(url for url in (listening.url, listening.socket_url) if url))
            say(f"jupyter gpushare scheduler listening on {urls} (policy {house.service.loaded.source})")
            if listening.url != listening.socket_url:
                self.log.info("the admin's token is in %s", listening.token_file)
            await over.wait()
        finally:
            house.hub.close()  # listeners leave by themselves, before the server waits for them
            house.agents.close()
            await listening.stop()
            await house.stop()

    def _signals(self, over: asyncio.Event, house: House) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, over.set)
        loop.add_signal_handler(signal.SIGHUP, lambda: house.loop.reload_policy(force=True))
