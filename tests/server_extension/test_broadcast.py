"""Pages that lost their connection miss nothing; pages that do not read are let go."""

from __future__ import annotations

import json

from jupyter_gpushare.messages import StreamKernelGone
from jupyter_gpushare.server_extension.services.broadcast import (
    LONGEST_BACKLOG,
    REMEMBERED,
    PageStream,
)


def publish(broadcast, times=1):
    for _ in range(times):
        broadcast.publish(lambda revision: StreamKernelGone(revision=revision, kernel_id="k"))


def test_a_page_resumes_after_what_it_saw():
    broadcast = PageStream()
    publish(broadcast, 3)
    missed = broadcast.missed(broadcast.revision - 2)
    assert [json.loads(frame)["revision"] for frame in missed] == [
        broadcast.revision - 1,
        broadcast.revision,
    ]
    assert broadcast.missed(broadcast.revision) == []


def test_what_is_too_old_or_not_ours_needs_the_whole_state():
    broadcast = PageStream()
    publish(broadcast, REMEMBERED + 5)
    assert broadcast.missed(broadcast.revision - REMEMBERED - 1) is None
    assert broadcast.missed(broadcast.revision + 1) is None
    assert broadcast.missed(0) is None


def test_a_page_that_does_not_read_is_let_go():
    broadcast = PageStream()
    slow = broadcast.listen()
    publish(broadcast, LONGEST_BACKLOG + 10)
    assert broadcast.listeners == 0
    frames = [slow.frames.get_nowait() for _ in range(slow.frames.qsize())]
    assert frames[-1] is None
