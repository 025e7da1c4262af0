"""The scheduler service as a program: configuration (traitlets), start, signals, end."""

from __future__ import annotations

import asyncio
import os
import platform
import signal
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from jupyter_gpushare.transports import token_in

from .app_config import SchedulerConfig, state_directory
from .auth.jupyterhub import HubAddress, JupyterHub, managed_by_hub
from .auth.peer_credentials import UnixPeers
from .auth.rate_limits import RateLimits
from .gc_tuning import GcTuning
from .http.listeners import ListenAddress, Listeners
from .http.standby import StandbyServer, keep_leading
from .hub_integration import integrate
from .server import SchedulerServer
from .store.database import StoreUnavailable, is_shared, open_engine, prepare
from .store.leadership import Leadership
from .store.store import Retention

__all__ = ["SchedulerApp", "state_directory"]

DAY_MS: Final = 24 * 3600 * 1000


class SchedulerApp(SchedulerConfig):
    """The scheduler service of a cluster or a shared machine."""

    _server: SchedulerServer | None = None
    """The current leader's server."""
    integrations: tuple[Callable[[SchedulerServer], None], ...] = ()
    """Called with each server before it starts: what the command line adds to it."""

    def server(self, leadership: Leadership | None = None) -> SchedulerServer:
        """The configured server. Raises GpuShareError."""
        server = SchedulerServer(
            Path(self.state_dir),
            leadership=leadership,
            group_commit=True,
            upgrade=self.db_upgrade or leadership is None,
            policy_file=Path(self.policy_file) if self.policy_file else None,
            db_url=self.db_url or None,
            retention=Retention(
                self.retention_days * DAY_MS,
                self.event_retention_days * DAY_MS,
                self.usage_retention_days * DAY_MS,
                self.ended_workloads_per_user,
            ),
            groups_of=self._groups_of,
            open_metrics=not self.protect_metrics,
            limits=RateLimits(
                calls_per_s=self.calls_per_second,
                calls_at_once=self.calls_at_once,
                body_bytes=self.body_bytes,
                frames_per_s=self.frames_per_second,
                frame_bytes=self.frame_bytes,
                links=self.links_per_caller,
                pods_per_user=self.pending_pods_per_user,
                pods_per_workload=self.pods_per_workload,
                output_per_user=self.output_bytes_per_user,
            ),
        )
        server.loop.tidy = GcTuning(
            lambda: len(server.service.unit_of_work.records),
            lambda: server.service.unit_of_work.ended,
        ).tick
        return server

    def _groups_of(self, user: str) -> tuple[str, ...]:
        return tuple(sorted(group for group, members in self.groups.items() if user in members))

    def _hub_address(self) -> HubAddress | None:
        """The configured Hub, or the one that manages this process. Raises InvalidInput,
        Unavailable.
        """
        if not self.hub_api_url:
            return managed_by_hub()
        token = (
            token_in(self.hub_api_token_file)()
            if self.hub_api_token_file
            else os.environ.get("JUPYTERHUB_API_TOKEN", "")
        )
        return HubAddress(self.hub_api_url, token, self.hub_service)

    def configure_authentication(self, server: SchedulerServer) -> None:
        """Accepts unix users and JupyterHub's users besides owners of tokens. Raises InvalidInput,
        Unavailable.
        """
        server.authenticator.peers = UnixPeers(self.admin_users, self._groups_of)
        if (address := self._hub_address()) is not None:
            hub = JupyterHub(
                address,
                groups_of=self._groups_of,
                remember=self.hub_remember_s,
                refresh=self.hub_refresh_s,
                ca_file=self.hub_ca_file,
            )
            integrate(server, hub)

    def address(self) -> ListenAddress:
        """Where to listen: as configured, else where the managing Hub expects this service."""
        managed = managed_by_hub() is not None
        stated, by_hub = (
            self.config.SchedulerApp,
            urlsplit(os.environ.get("JUPYTERHUB_SERVICE_URL", "") if managed else ""),
        )
        host, port = self.host, self.port
        if by_hub.hostname and "port" not in stated:
            host, port = by_hub.hostname, by_hub.port or port
        only_socket = (
            bool(self.socket)
            and not by_hub.hostname
            and "port" not in stated
            and "host" not in stated
        )
        return ListenAddress(
            host,
            None if only_socket else port,
            self.certfile,
            self.keyfile,
            self.client_ca,
            socket=Path(self.socket) if self.socket else None,
            socket_mode=self.socket_mode,
            token_file=Path(self.token_file) if self.token_file else None,
            prefix=os.environ.get("JUPYTERHUB_SERVICE_PREFIX", "") if managed else "",
        )

    async def serve(self, say: Callable[[str], None]) -> None:
        """Runs until SIGINT or SIGTERM. `say` is called when the server listens and schedules.
        Raises GpuShareError.
        """
        over = asyncio.Event()
        self._signals(over)
        if self.db_url and is_shared(self.db_url):
            await self._serve_in_turn(over, say)
        else:
            await self._lead(self.address(), None, over, say)

    async def _serve_in_turn(self, over: asyncio.Event, say: Callable[[str], None]) -> None:
        """With a shared database: stands by, leads, and stands by again."""
        self._prepare_tables()
        leadership, address = (
            Leadership(
                self.db_url, f"{platform.node()}:{os.getpid()}", silent_s=self.leader_silent_s
            ),
            self.address(),
        )
        try:
            while not over.is_set():
                standby = StandbyServer(leadership, address, self.public_url)
                address = standby.address
                try:
                    await first_of(
                        standby.turn(lambda words: say(f"jupyter gpushare scheduler {words}")),
                        over.wait(),
                    )
                finally:
                    await standby.stop()
                if over.is_set():
                    break
                try:
                    await self._lead(address, leadership, over, say)
                except StoreUnavailable as error:
                    self.log.error("cannot lead: %s", error.message)
                await asyncio.to_thread(leadership.resign)
        finally:
            await asyncio.to_thread(leadership.close)

    def _prepare_tables(self) -> None:
        engine = open_engine(self.db_url)
        try:
            prepare(engine, upgrade=self.db_upgrade)
        finally:
            engine.dispose()

    async def _lead(
        self,
        address: ListenAddress,
        leadership: Leadership | None,
        over: asyncio.Event,
        say: Callable[[str], None],
    ) -> None:
        """Schedules and serves until `over`, or until another scheduler leads."""
        server = self.server(leadership)
        try:
            self.configure_authentication(server)
            for integrate_into in self.integrations:
                integrate_into(server)
            listeners = Listeners(server, address, Path(self.state_dir))
        except BaseException:
            await server.stop()
            raise
        try:
            self._server = server
            server.start()
            leading = asyncio.create_task(self._until_over(server, leadership, over))
            await first_of(server.decided.wait(), asyncio.shield(leading))
            if not leading.done():
                self._announce(server, listeners, say)
            await leading
        finally:
            self._server = None
            server.events.close()  # streams end first, so that stopping does not wait for them
            server.agents.close()
            await listeners.stop()
            await server.stop()

    def _announce(
        self, server: SchedulerServer, listeners: Listeners, say: Callable[[str], None]
    ) -> None:
        listeners.leave_note()
        urls = " and ".join(
            dict.fromkeys(url for url in (listeners.url, listeners.socket_url) if url)
        )
        policy = server.service.unit_of_work.loaded.source
        say(f"jupyter gpushare scheduler listening on {urls} (policy {policy})")
        if listeners.url != listeners.socket_url:
            self.log.info("the admin's token is in %s", listeners.token_file)

    @staticmethod
    async def _until_over(
        server: SchedulerServer, leadership: Leadership | None, over: asyncio.Event
    ) -> None:
        if leadership is None:
            await first_of(over.wait(), server.over.wait())
        elif (
            why := await first_of(over.wait(), server.over.wait(), keep_leading(leadership))
        ) and isinstance(why, str):
            server.store.stop(why)

    def _signals(self, over: asyncio.Event) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, over.set)
        loop.add_signal_handler(signal.SIGHUP, self._reload)

    def _reload(self) -> None:
        if self._server is not None:
            self._server.loop.reload_policy(force=True)


async def first_of(*these: Coroutine[Any, Any, object] | asyncio.Future[Any]) -> object:
    """The result of the first of these to finish; the others are cancelled. Raises what the first
    raised.
    """
    tasks = [asyncio.ensure_future(one) for one in these]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        return next(task.result() for task in tasks if task in done)
    finally:
        for task in tasks:
            task.cancel()
