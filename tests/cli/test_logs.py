"""What scheduler and agent write on stderr: lines for people or one JSON object per line, whose it
is, and never a secret.
"""

from __future__ import annotations

import io
import json
import logging
import secrets
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from jupyter_gpushare.cli.log_format import set_up
from tests.scheduler.test_processes import Box, box, nodes


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., str]]:
    """Sets logging up in a form and gives what a call of it writes."""
    root, stream = logging.getLogger(), io.StringIO()
    before = root.handlers[:], root.level

    def write(
        form: str, *what: object, level: str = "info", exc_info: bool = False, **extra: str
    ) -> str:
        monkeypatch.setattr("sys.stderr", stream)
        set_up(level, form, node="n0")
        logging.getLogger("gpushare.test").info(*what, exc_info=exc_info, extra=extra)
        return stream.getvalue()

    # `force` closes the handlers that are there: pytest's own are kept out of its way
    root.handlers = []
    yield write
    logging.captureWarnings(capture=False)
    root.handlers, root.level = before


def test_a_line_is_one_json_object_that_says_whose_it_is(written: Callable[..., str]) -> None:
    (line,) = written(
        "json", "%s of\n%s", "work", "é", workload="w1", user="alice", colour="red"
    ).splitlines()
    said = json.loads(line)
    assert said.pop("time").endswith("+00:00")
    assert said == {
        "level": "info",
        "logger": "gpushare.test",
        "message": "work of\né",
        "node": "n0",
        "workload": "w1",
        "user": "alice",
    }


def test_a_traceback_is_part_of_its_object(written: Callable[..., str]) -> None:
    try:
        raise ValueError("no such thing")
    except ValueError:
        (line,) = written("json", "it failed", exc_info=True).splitlines()
    assert json.loads(line)["error"].endswith("ValueError: no such thing")


def test_a_name_with_line_ends_forges_no_line_for_people(written: Callable[..., str]) -> None:
    (line,) = written("text", "workload %s waits", "a\n2026-01-01 ERROR forged").splitlines()
    assert "INFO gpushare.test: workload a\\n2026" in line


CONTROLS = "\x1b[2J\x07\x9b1m\r\n\u2028\u202e\x7f"


@pytest.mark.parametrize("form", ["text", "json"])
def test_control_characters_are_escaped(written: Callable[..., str], form: str) -> None:
    """A name cannot control the terminal of the person who reads the log."""
    try:
        raise ValueError(f"no notebook {CONTROLS}")
    except ValueError:
        text = written(form, "workload %s", f"a{CONTROLS}b", exc_info=True, user=f"eve{CONTROLS}")
    assert all(character.isprintable() or character in "\n\t" for character in text)
    assert "\\x1b[2J" in text or "\\u001b[2J" in text


def test_what_is_too_mild_is_not_written(written: Callable[..., str]) -> None:
    assert written("json", "hello", level="warning") == ""


SECRET = "gpushare_" + secrets.token_urlsafe(32)
HOLDING = {
    "a token of ours": SECRET,
    "a header": f"Authorization: Bearer {SECRET[9:]}",
    "a header of Jupyter's": f"Authorization: token {SECRET[9:]}",
    "an address": f"http://here/lab?token={SECRET[9:]}&x=1",
    "a database": f"postgresql://gpushare:{SECRET[9:]}@db/gpushare",
}


@pytest.mark.parametrize("form", ["text", "json"])
@pytest.mark.parametrize("text", HOLDING.values(), ids=HOLDING)
def test_a_secret_that_gets_into_a_line_is_taken_out(
    written: Callable[..., str], text: str, form: str
) -> None:
    try:
        raise ValueError(text)
    except ValueError:
        line = written(form, "it failed: %s", text, user=text, exc_info=True)
    assert SECRET[9:] not in line
    assert "[hidden]" in line


def test_metrics_and_paths_are_no_secrets(written: Callable[..., str]) -> None:
    text = "gpushare_queue_allocated of /var/lib/gpushare/admin.token; the admin's token is in it"
    assert text in written("text", text)


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_scheduler_and_agent_write_nothing_but_json(tmp_path: Path) -> None:
    with box(tmp_path) as here:
        url = here.scheduler("--port", 0, "--log-format", "json")
        token = here.state / "admin.token"
        agent = (
            "--simulate",
            "A100:1",
            "--node",
            "n0",
            "--state-dir",
            tmp_path / "agent",
            "--token-file",
            token,
            "--log-format",
            "json",
        )
        here.start("agent", "agent", "--scheduler", url, *agent)
        here.until(lambda: nodes(here.ask) == ["n0"])
        done = here.say("run", "--project", "vision", "--gpu", "1", "--", "true")
        assert done.returncode == 0, done.stderr
        for name, least in (
            ("scheduler", {"workload", "user", "project"}),
            ("agent", {"node", "workload", "lease"}),
        ):
            lines = here.until(lambda name=name, least=least: lines_about(here, name, least))
            assert lines, here.logs()
        assert token.read_text().strip() not in here.logs()


def lines_about(here: Box, name: str, least: set[str]) -> list[dict[str, str]]:
    """Every line but the one on stdout that says where it listens is an object; those that say all
    of these.
    """
    text = (here.folder / f"{name}.log").read_text()
    lines = [
        json.loads(line)
        for line in text.splitlines()
        if not line.startswith("jupyter gpushare scheduler listening on")
    ]
    assert all({"time", "level", "logger", "message"} <= set(line) for line in lines)
    return [line for line in lines if least <= set(line)]
