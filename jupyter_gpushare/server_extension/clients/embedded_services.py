"""The embedded scheduler and node agent: started in the background, stopped with the server."""

from __future__ import annotations

import asyncio
from contextlib import ExitStack
from logging import Logger
from typing import TYPE_CHECKING, Final

from jupyter_gpushare.client import Transport
from jupyter_gpushare.core.model.errors import GpuShareError

from .embedded_log import in_server_log
from .embedded_scheduler import EmbeddedOptions, SchedulerRunsElsewhere, start_local
from .scheduler_transport import LateTransport
from .startup import StartupState

if TYPE_CHECKING:
    from jupyter_gpushare.scheduler.embedded import EmbeddedServer

__all__ = ["EmbeddedServices"]

RETRY_S: Final = 2.0
"""Seconds between two checks whether another server still runs the scheduler and the agent."""
STARTING: Final = "the scheduler inside this server is starting"


class EmbeddedServices:
    """Sets the scheduler's transport when the scheduler runs, and the startup state on the way."""

    def __init__(
        self, options: EmbeddedOptions, transport: LateTransport, startup: StartupState, log: Logger
    ) -> None:
        self._options, self._transport, self._startup = options, transport, startup
        self._log = log
        self._server: EmbeddedServer | None = None
        self._logging = ExitStack()

    async def start(self) -> None:
        """Start the embedded services, or use those of another server of this user.

        When the other server ends, this one starts its own.
        """
        uses_other = False
        self._logging.enter_context(in_server_log(self._log))
        try:
            while (elsewhere := await self._try_start()) is not None:
                if not uses_other:
                    uses_other = True
                    self._use_other_server(elsewhere)
                await asyncio.sleep(RETRY_S)
            # After another server it stays on the socket, where its own scheduler listens now.
            if self._server is not None and not uses_other:
                self.use_scheduler(self._server.transport)
        finally:
            self._startup.finished.set()

    def use_scheduler(self, transport: Transport) -> None:
        """The scheduler runs and is reached by this transport."""
        self._transport.set(transport)

    async def stop(self) -> None:
        """Stop the services that this server started."""
        if self._server is not None:
            await self._server.stop()
        self._logging.close()

    def _use_other_server(self, elsewhere: SchedulerRunsElsewhere) -> None:
        self.use_scheduler(elsewhere.transport)
        self._log.info(
            "gpushare: %s; this server uses them, and starts its own when that server ends",
            elsewhere.message,
        )
        self._startup.finished.set()

    async def _try_start(self) -> SchedulerRunsElsewhere | None:
        """None: the embedded services run, or cannot run on this machine."""
        try:
            self._server = await start_local(self._options, on_delay=self._driver_delay)
        except SchedulerRunsElsewhere as elsewhere:
            return elsewhere
        except GpuShareError as error:
            self._log.warning("gpushare: this server manages no GPUs: %s", error.message)
            self._set_problem(error.message)
        except Exception:
            self._log.exception("gpushare: the scheduler inside this server did not start")
            self._set_problem(
                "the scheduler inside this server did not start; the server's log has the details"
            )
        else:
            self._log.info(
                "gpushare: scheduler and node agent run inside this server with %s, state in %s",
                self._server.gpus_text,
                self._options.state_dir,
            )
        return None

    def _set_problem(self, problem: str) -> None:
        self._startup.problem = self._transport.problem = problem

    def _driver_delay(self, problem: str) -> None:
        """The driver does not answer ("": it answers again). Kernels start without a GPU meanwhile
        and are registered later.
        """
        if not problem:
            self._log.info("gpushare: the GPU driver answers")
            self._startup.problem, self._transport.problem = None, STARTING
            return
        problem = (
            f"{problem}; waiting for it, kernels start without a GPU meanwhile "
            "(`dmesg` may show the cause)"
        )
        self._log.warning("gpushare: %s", problem)
        self._set_problem(problem)
        self._startup.finished.set()
