"""The response to a what-if request: where it would start, whom it would displace, and what else
would start now.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from msgspec.structs import replace

from jupyter_gpushare import messages as m
from jupyter_gpushare.core.model.amounts import MILLI
from jupyter_gpushare.core.model.decisions import WhatIf
from jupyter_gpushare.core.model.errors import GpuShareError
from jupyter_gpushare.core.model.units import gpu_text, read_gpu

from ..state.nodes import NodeRegistry
from ..state.workload_records import WorkloadRecord, reason_of

__all__ = ["alternatives_of", "what_if_answer"]

SHARES: Final = (MILLI, 500, 250, 100)
"""Smaller shares that are tried as alternatives, in milli-GPU."""
RpcRequest = Callable[[m.WorkloadRequest], WhatIf]
Wait = Callable[[WhatIf], m.ExpectedWait | None]


def what_if_answer(
    request: m.WorkloadRequest,
    ask: RpcRequest,
    records: Mapping[str, WorkloadRecord],
    nodes: NodeRegistry,
    pools: list[str],
    wait: Wait = lambda _: None,
    *,
    name_of: Callable[[WorkloadRecord], str] = lambda _: "",
    notice_ms: int = 0,
) -> m.WhatIfAnswer:
    """Asks the core; if the request would not start now, asks again for smaller shares and for the
    other `pools`. `wait`: gives the expected wait; `name_of`: names that the caller may see;
    `notice_ms`: the notice of evictions.
    """
    found = ask(request)
    spots = list(found.spots.values())
    spot = spots[0] if spots else None
    planned = [nodes.uuid_of(spot.node, device) for spot in spots for device in spot.devices]
    displaced = []
    for evict in found.displaces:
        record = records.get(evict.workload)
        displaced.append(
            m.Displaced(
                workload=evict.workload,
                project=record.project if record else "",
                name=name_of(record) if record else "",
                action=evict.action,
                message=evict.message,
                notice_ms=notice_ms,
            )
        )
    return m.WhatIfAnswer(
        starts_now=found.starts_now,
        node=spot.node if spot else None,
        planned_gpu=nodes.uuid_of(spot.node, spot.devices[0]) if spot and spot.devices else None,
        planned_gpus=[uuid for uuid in planned if uuid is not None],
        displaces=displaced,
        reason=reason_of(found.reason),
        expected_wait=wait(found),
        alternatives=[] if found.starts_now else list(alternatives_of(request, ask, pools)),
    )


def alternatives_of(
    request: m.WorkloadRequest, ask: RpcRequest, pools: list[str]
) -> Iterator[m.Alternative]:
    """The largest smaller share that would start now, and for every other pool the largest share
    that would start there.

    `pools`: those that the request does not use itself.
    """
    for changed, words, sentence in _smaller(request):
        if _starts(changed, ask):
            yield m.Alternative(request=words, message=f"{sentence}.")
            break
    for pool in pools:
        for changed, words, sentence in ((request, {}, "It would start now"), *_smaller(request)):
            if _starts(replace(changed, node_pools=[pool]), ask):
                yield m.Alternative(
                    request={**words, "node_pools": [pool]},
                    message=f"{sentence} in node pool {pool}.",
                )
                break


def _smaller(request: m.WorkloadRequest) -> Iterator[tuple[m.WorkloadRequest, dict[str, Any], str]]:
    pod = request.pods[0]
    if len(request.pods) > 1 or pod.gpu is None:
        return
    for share in SHARES:
        if share < read_gpu(pod.gpu):
            smaller = replace(pod, gpu=share / MILLI, gpu_limit=None)
            yield (
                replace(request, pods=[smaller]),
                {"gpu": share / MILLI},
                f"{gpu_text(share)} GPU would start now",
            )


def _starts(request: m.WorkloadRequest, ask: RpcRequest) -> bool:
    try:
        return ask(request).starts_now
    except GpuShareError:
        return False
