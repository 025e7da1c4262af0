"""What people request for their kernels: shares, and actions on the kernels' GPU memory."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Final, Literal, get_args

import msgspec

from jupyter_gpushare.core.model.errors import Conflict, GpuShareError, Unavailable
from jupyter_gpushare.messages import (
    Kernel,
    KernelAction,
    KernelActionRequest,
    KernelRequest,
    StartPreviewRequest,
    WhatIfAnswer,
)

from ..clients.agent_client import AgentClient
from ..kernels.request import shares
from ..requests.presets import Presets
from ..requests.submitter import PreviousRequests, Submitter
from .kernel_service import KernelService
from .notebook_names import NotebookNames

__all__ = ["ACTIONS", "RequestService"]

Action = Literal[KernelAction, "cancel"]
"""Of the agent, or `cancel`: a pending request."""
ACTIONS: Final[tuple[Action, ...]] = (*get_args(KernelAction), "cancel")
CHECK_S: Final = 1.0
"""Longest wait of a kernel's start for the scheduler's check of its request."""
PREVIEW_S: Final = 2.0
"""Longest wait of a what-if for the agent's part of the answer."""
ACTION_S: Final = 30.0
"""Longest wait for the agent to carry out an action."""


class RequestService:
    """All methods raise NotFound for a kernel that Jupyter does not have."""

    def __init__(
        self,
        kernels: KernelService,
        submitter: Submitter,
        names: NotebookNames,
        agent: AgentClient,
        presets: Presets,
    ) -> None:
        self._kernels, self._submitter, self._names = kernels, submitter, names
        self._agent, self._presets = agent, presets

    async def request(
        self, kernel_id: str, request: KernelRequest
    ) -> tuple[Kernel, PreviousRequests]:
        """Request a share; returns the kernel and what it requested before.

        Raises:
            GpuShareError: refused, or the scheduler cannot be reached; nothing was changed.
        """
        self._kernels.check_provisioner(kernel_id)
        if not self._kernels.name(kernel_id):
            await self._names.refresh()  # the notebook is new
        before = await self._submitter.request(kernel_id, self._presets.resolved(request))
        return self._kernels.get(kernel_id), before

    async def check(self, request: KernelRequest) -> KernelRequest:
        """The request with its preset's values, checked by the scheduler if that answers quickly.

        A request that does not fit the cluster as it is now (Conflict) passes: the kernel starts,
        and shows the refusal when the request is submitted.

        Raises:
            GpuShareError: it is invalid: a wrong amount, or an unknown project or pool.
        """
        resolved = self._presets.resolved(request)
        with contextlib.suppress(TimeoutError, Unavailable, Conflict):
            async with asyncio.timeout(CHECK_S):
                await self._submitter.check(resolved)
        return resolved

    async def release(self, kernel_id: str) -> Kernel:
        """Release the share."""
        self._kernels.get(kernel_id)
        await self._submitter.release(kernel_id)
        return self._kernels.get(kernel_id)

    async def what_if(self, request: KernelRequest, kernel_id: str = "") -> WhatIfAnswer:
        """Whether it would start now; with a kernel id: in place of the kernel's current share.

        Raises:
            GpuShareError: the request would be refused.
        """
        if kernel_id:
            self._kernels.get(kernel_id)
        resolved = self._presets.resolved(request)
        answer = await self._submitter.what_if(kernel_id or "what-if", resolved)
        return await self._with_preview(answer, resolved, kernel_id)

    async def _with_preview(
        self, answer: WhatIfAnswer, request: KernelRequest, kernel_id: str
    ) -> WhatIfAnswer:
        """Adds what the agent would do on this node; unchanged if it does not start now here, or
        the agent does not answer.
        """
        welcome = self._agent.welcome
        if not answer.starts_now or welcome is None or answer.node != welcome.node:
            return answer
        message = StartPreviewRequest(
            n=self._agent.next_number(),
            kernel_id=kernel_id,
            request=shares(request)[0],
            planned_gpus=answer.planned_gpus,
        )
        try:
            found = await self._agent.preview(message, PREVIEW_S)
        except GpuShareError:
            return answer
        return msgspec.structs.replace(
            answer,
            gpus=found.gpus,
            affected=found.affected,
            notice_ms=max((one.notice_ms for one in found.affected), default=0),
        )

    async def act(self, kernel_id: str, action: Action) -> Kernel:
        """Carry out an action.

        Raises:
            GpuShareError: the agent cannot be reached, or refuses; nothing is pending.
        """
        self._kernels.get(kernel_id)
        if action == "cancel":
            await self._submitter.cancel(kernel_id)
            return self._kernels.get(kernel_id)
        message = KernelActionRequest(
            n=self._agent.next_number(), kernel_id=kernel_id, action=action
        )
        await self._agent.act(message, ACTION_S)
        return self._kernels.get(kernel_id)
