"""Pages that lost their connection resume without loss; pages that do not read are disconnected."""

from __future__ import annotations

import json

from jupyter_gpushare.messages import StreamKernelGone
from jupyter_gpushare.server_extension.services.page_stream import (
    MAX_BACKLOG,
    MAX_HISTORY,
    PageStream,
)


def publish(pages, times=1):
    for _ in range(times):
        pages.publish(lambda revision: StreamKernelGone(revision=revision, kernel_id="k"))


def test_a_page_resumes_after_its_last_frame():
    pages = PageStream()
    publish(pages, 3)
    missed = pages.missed(pages.revision - 2)
    revisions = [json.loads(frame)["revision"] for frame in missed]
    assert revisions == [pages.revision - 1, pages.revision]
    assert pages.missed(pages.revision) == []


def test_an_old_or_unknown_revision_needs_the_complete_state():
    pages = PageStream()
    publish(pages, MAX_HISTORY + 5)
    assert pages.missed(pages.revision - MAX_HISTORY - 1) is None
    assert pages.missed(pages.revision + 1) is None
    assert pages.missed(0) is None


def test_a_page_that_does_not_read_is_disconnected():
    pages = PageStream()
    slow = pages.listen()
    publish(pages, MAX_BACKLOG + 10)
    assert pages.listeners == 0
    frames = [slow.frames.get_nowait() for _ in range(slow.frames.qsize())]
    assert frames[-1] is None
