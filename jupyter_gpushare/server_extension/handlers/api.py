"""REST handlers and the URL table under `<base_url>gpushare/api/`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final
from urllib.parse import unquote

from jupyter_server.auth.decorator import authorized
from jupyter_server.base.handlers import JupyterHandler
from jupyter_server.utils import url_path_join
from tornado import web

from jupyter_gpushare.core.estimates.time_series import minutes_in
from jupyter_gpushare.core.model.errors import InvalidInput, NotFound
from jupyter_gpushare.messages import (
    BookingRequest,
    KernelHistory,
    KernelRequest,
    MemberLimit,
    Table,
    decode,
    table_as_csv,
)

from ..services.request_service import ACTIONS
from .base import GpuShareAPIHandler, with_error_body
from .stream import PageStreamHandler

__all__ = ["handlers"]

TABLES: Final = ("queues", "nodes", "pools", "projects", "workloads", "evictions", "people")


class StatusHandler(GpuShareAPIHandler):
    @web.authenticated
    @authorized
    @with_error_body
    async def get(self) -> None:
        self.send_json(self.service.status())


class KernelHandler(GpuShareAPIHandler):
    @web.authenticated
    @authorized
    @with_error_body
    async def get(self, kernel_id: str) -> None:
        self.send_json(self.service.kernels.get(kernel_id))

    @web.authenticated
    @authorized
    @with_error_body
    async def post(self, kernel_id: str) -> None:
        self.service.kernels.get(kernel_id)
        request = decode(KernelRequest, self.request.body or b"{}")
        kernel, _ = await self.service.requests.request(kernel_id, request)
        self.send_json(kernel)

    @web.authenticated
    @authorized
    @with_error_body
    async def delete(self, kernel_id: str) -> None:
        self.send_json(await self.service.requests.release(kernel_id))


class ActionHandler(GpuShareAPIHandler):
    @web.authenticated
    @authorized
    @with_error_body
    async def post(self, kernel_id: str, action: str) -> None:
        known = next((one for one in ACTIONS if one == action), None)
        if known is None:
            raise NotFound(
                f"unknown action {action!r}; actions: {', '.join(ACTIONS)}", field="action"
            )
        self.send_json(await self.service.requests.act(kernel_id, known))


class TableHandler(GpuShareAPIHandler):
    @web.authenticated
    @authorized
    @with_error_body
    async def get(self, table: str) -> None:
        await self.send_table(lambda: self.service.tables.rows(table))

    async def send_table(self, rows_of: Callable[[], Awaitable[Table]]) -> None:
        """As JSON or CSV; a wrong query is refused before the rows are fetched."""
        text_format = self.get_query_argument("format", "json")
        if text_format not in ("json", "csv"):
            raise InvalidInput(f"format must be json or csv, got {text_format!r}", field="format")
        listed = self.get_query_argument("columns", "").split(",")
        columns = [name.strip() for name in listed if name.strip()]
        rows = await rows_of()
        # Also for JSON if columns are given: an unknown column is an error for both.
        text = table_as_csv(rows, columns or None) if columns or text_format == "csv" else ""
        if text_format == "json":
            self.send_json(rows)
            return
        # Jupyter's finish() overwrites a Content-Type header that was set before.
        await self.finish(text, set_content_type="text/csv; charset=utf-8")


class QueueHistoryHandler(TableHandler):
    @web.authenticated
    @authorized
    @with_error_body
    async def get(self) -> None:
        minutes = minutes_in(self.get_query_argument("minutes", ""))
        pool = self.get_query_argument("pool", None)
        await self.send_table(lambda: self.service.tables.queue_history(pool, minutes))


class NodeHistoryHandler(GpuShareAPIHandler):
    @web.authenticated
    @authorized
    @with_error_body
    async def get(self) -> None:
        names = ("minutes", "since", "node")
        query = {name: self.get_query_argument(name, "") for name in names}
        given = {name: value for name, value in query.items() if value}
        self.send_json(await self.service.tables.node_history(given))


class KernelHistoryHandler(TableHandler):
    @web.authenticated
    @authorized
    @with_error_body
    async def get(self, kernel_id: str) -> None:
        minutes = minutes_in(self.get_query_argument("minutes", ""))

        async def history() -> KernelHistory:
            return self.service.kernels.history(kernel_id, minutes)

        await self.send_table(history)


class WorkloadHandler(GpuShareAPIHandler):
    @web.authenticated
    @authorized
    @with_error_body
    async def delete(self, workload: str) -> None:
        self.send_json(await self.service.tables.end_workload(workload))


class NodeActionHandler(GpuShareAPIHandler):
    @web.authenticated
    @authorized
    @with_error_body
    async def post(self, name: str, action: str) -> None:
        self.send_json(await self.service.tables.node_action(name, action))


class MemberLimitHandler(GpuShareAPIHandler):
    @web.authenticated
    @authorized
    @with_error_body
    async def post(self) -> None:
        limit = decode(MemberLimit, self.request.body or b"{}")
        self.send_json(await self.service.tables.limit_person(limit))


class BookingsHandler(TableHandler):
    """The table of bookings, and new ones."""

    @web.authenticated
    @authorized
    @with_error_body
    async def get(self) -> None:
        await self.send_table(lambda: self.service.tables.rows("bookings"))

    @web.authenticated
    @authorized
    @with_error_body
    async def post(self) -> None:
        request = decode(BookingRequest, self.request.body or b"{}")
        self.send_json(await self.service.tables.book(request))


class BookingHandler(GpuShareAPIHandler):
    @web.authenticated
    @authorized
    @with_error_body
    async def delete(self, booking: str) -> None:
        self.send_json(await self.service.tables.cancel_booking(unquote(booking)))


class BookingCalendarHandler(GpuShareAPIHandler):
    @web.authenticated
    @authorized
    @with_error_body
    async def get(self) -> None:
        names = ("pool", "from", "to")
        query = {name: self.get_query_argument(name, "") for name in names}
        stated = {name: text for name, text in query.items() if text}
        self.send_json(await self.service.tables.booking_calendar(stated))


class ManageHandler(GpuShareAPIHandler):
    @web.authenticated
    @authorized
    @with_error_body
    async def post(self, id: str, action: str) -> None:  # noqa: A002 - the name in the route
        self.send_json(await self.service.tables.manage(unquote(id), action))


class WhatIfHandler(GpuShareAPIHandler):
    @web.authenticated
    @authorized
    @with_error_body
    async def post(self) -> None:
        kernel_id = self.get_query_argument("kernel_id", "")
        if kernel_id:
            self.service.kernels.get(kernel_id)  # NotFound comes before errors of the body
        request = decode(KernelRequest, self.request.body or b"{}")
        self.send_json(await self.service.requests.what_if(request, kernel_id))


class NotFoundHandler(GpuShareAPIHandler):
    """All other paths, with our error body."""

    is_relayed = False

    @web.authenticated
    @authorized
    @with_error_body
    async def get(self) -> None:
        raise NotFound(f"{self.request.path} does not exist")

    post = put = patch = delete = get


def handlers(base_url: str) -> list[tuple[str, type[JupyterHandler]]]:
    """The URL table; a test compares it with `routes.JUPYTER_ROUTES`."""
    kernel = r"kernels/(?P<kernel_id>[^/]+)"
    table = [
        (r"status", StatusHandler),
        (kernel, KernelHandler),
        (kernel + r"/actions/(?P<action>[^/]+)", ActionHandler),
        (rf"(?P<table>{'|'.join(TABLES)})", TableHandler),
        (r"history/queues", QueueHistoryHandler),
        (r"history/nodes", NodeHistoryHandler),
        (kernel + r"/history", KernelHistoryHandler),
        (r"workloads/(?P<workload>[^/]+)", WorkloadHandler),
        (r"nodes/(?P<name>[^/]+)/(?P<action>[^/]+)", NodeActionHandler),
        (r"people/limit", MemberLimitHandler),
        (r"bookings", BookingsHandler),
        (r"bookings/calendar", BookingCalendarHandler),
        (r"bookings/(?P<booking>[^/]+)", BookingHandler),
        (r"workloads/(?P<id>[^/]+)/actions/(?P<action>[^/]+)", ManageHandler),
        (r"what-if", WhatIfHandler),
        (r"stream", PageStreamHandler),
        (r".*", NotFoundHandler),
    ]
    return [(url_path_join(base_url, "gpushare/api/") + path, handler) for path, handler in table]
