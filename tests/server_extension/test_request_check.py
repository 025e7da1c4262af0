"""What keeps a kernel from starting: a wrong request, not a full or small cluster."""

from __future__ import annotations

import pytest

from jupyter_gpushare.core.model.errors import Conflict, InvalidInput, NotFound, Unavailable
from jupyter_gpushare.messages import KernelRequest
from jupyter_gpushare.server_extension.requests.presets import Presets
from jupyter_gpushare.server_extension.services.request_service import RequestService
from tests.server_extension.test_change_of_share import Setup, in_event_loop

ANSWERS = {
    "it would start": (None, True),
    "it can never start here": (Conflict("the largest node has 2 GPUs"), True),
    "the scheduler is away": (Unavailable("away"), True),
    "an unknown project": (NotFound("no project", field="project"), False),
    "a wrong amount": (InvalidInput("gpu must not be negative", field="gpu"), False),
}


@in_event_loop
@pytest.mark.parametrize(("error", "starts"), ANSWERS.values(), ids=ANSWERS)
async def test_only_a_wrong_request_keeps_a_kernel_from_starting(error, starts):
    setup = Setup()
    setup.scheduler.error = error
    requests = RequestService(None, setup.submitter, None, None, Presets())
    request = KernelRequest(gpu=3)
    if starts:
        assert await requests.check(request) == request
    else:
        with pytest.raises(type(error)):
            await requests.check(request)
