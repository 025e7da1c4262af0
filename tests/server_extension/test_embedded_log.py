"""The log of the embedded scheduler and agent is in the log of the Jupyter server."""

from __future__ import annotations

import logging

from jupyter_gpushare.server_extension.clients.embedded_log import in_server_log


class Records(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(record.getMessage())


def test_policy_changes_and_warnings_are_logged_while_the_services_run():
    server, records = logging.Logger("server", logging.INFO), Records()
    server.addHandler(records)
    scheduler = logging.getLogger("gpushare.scheduler")
    with in_server_log(server):
        logging.getLogger("gpushare.scheduler.policy").info("policy changed: notice")
        logging.getLogger("gpushare.agent").info("kernel k: granted")
        scheduler.error("policy refused")
    scheduler.error("after its end")
    assert records.texts == ["policy changed: notice", "policy refused"]
