"""A GPU request of one kernel: validated as far as possible without the scheduler, and converted to
the workload that the scheduler receives. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from typing import Final

from jupyter_gpushare.core.model.amounts import GPU
from jupyter_gpushare.core.model.errors import InvalidInput
from jupyter_gpushare.core.model.gpu_request import GpuRequest, read_gpu_request
from jupyter_gpushare.core.model.units import read_gpu
from jupyter_gpushare.messages import KernelRequest, PodRequest, Share, WorkloadRequest, convert

__all__ = [
    "CONFIG_FIELDS",
    "checked",
    "from_config",
    "unknown_keys_message",
    "pools_of",
    "same",
    "shares",
    "workload",
]

CONFIG_FIELDS: Final = (
    "preset",
    "gpu",
    "gpu_memory",
    "gpu_limit",
    "project",
    "node_pools",
    "priority_class",
    "queue_anyway",
)


def from_config(config: dict[str, object]) -> KernelRequest | None:
    """The request in a kernelspec's `config`; None: no GPU (no amount, or only `gpu: 0`).

    Raises:
        InvalidInput: the config is wrong; `field` names the key.
    """
    given = {name: value for name, value in config.items() if value not in (None, "", [])}
    if not {"preset", "gpu", "gpu_memory", "gpu_limit"} & given.keys():
        return None
    request = convert(KernelRequest, given)
    if request.preset is not None:
        return request  # checked when the server resolves the preset
    return None if given in ({"gpu": 0}, {"gpu": "0"}) else checked(request)


def unknown_keys_message(config: Mapping[str, object]) -> str:
    """A sentence about unknown keys of a kernelspec's `config`; "": there are none.

    They are no error: a kernelspec may have keys of a newer version, and its kernels must start.
    """
    unknown = sorted(str(key) for key in config if key not in CONFIG_FIELDS)
    if not unknown:
        return ""
    label = "key" if len(unknown) == 1 else "keys"
    names = ", ".join(_with_suggestion(key) for key in unknown)
    known = ", ".join(CONFIG_FIELDS)
    return f"Ignored unknown {label} in the kernelspec: {names}. Known keys: {known}."


def _with_suggestion(key: str) -> str:
    close = get_close_matches(key, CONFIG_FIELDS, n=1)
    return f"{key!r} (did you mean {close[0]!r}?)" if close else repr(key)


def checked(request: KernelRequest) -> KernelRequest:
    """The same request.

    Raises:
        InvalidInput: it is wrong for every cluster; `field` names the part.
    """
    if request.gpu is None and request.gpu_memory is None:
        raise InvalidInput(
            "the share is missing: give gpu (such as 0.5) or gpu_memory (such as 20GiB)",
            field="gpu",
        )
    if request.gpu is not None and request.gpu_memory is not None:
        raise InvalidInput("gpu and gpu_memory exclude each other", field="gpu")
    amounts = _amounts(request)
    if request.gpu is not None and amounts.gpu <= 0:
        raise InvalidInput("gpu must be more than 0", field="gpu")
    return request


def _amounts(request: KernelRequest) -> GpuRequest:
    return read_gpu_request(request.gpu, request.gpu_memory, request.gpu_limit, needs_unit=True)


def pools_of(request: KernelRequest) -> list[str]:
    """Node pools in order; text is split at commas."""
    pools = request.node_pools
    if isinstance(pools, str):
        return [name.strip() for name in pools.split(",") if name.strip()]
    return list(pools or [])


def shares(request: KernelRequest) -> tuple[Share, Share]:
    """Request and burst limit as numbers, of a checked request."""
    amounts = read_gpu_request(request.gpu, request.gpu_memory, request.gpu_limit)
    gpu = None if request.gpu is None else amounts.gpu / GPU
    limit = None if request.gpu_limit is None else read_gpu(request.gpu_limit) / GPU
    return Share(gpu=gpu, gpu_memory_mib=amounts.memory), Share(gpu=limit)


def same(one: KernelRequest, other: KernelRequest) -> bool:
    """Whether two checked requests are equal, however their amounts are written."""
    names = ("project", "priority_class")
    equal = all(getattr(one, name) == getattr(other, name) for name in names)
    return equal and shares(one) == shares(other) and pools_of(one) == pools_of(other)


def workload(
    request: KernelRequest,
    workload_id: str,
    *,
    kernel_id: str,
    name: str,
    node: str,
    user: str | None,
) -> WorkloadRequest:
    """One kernel is one workload with one pod, which must run on the kernel's node."""
    nodes = [node] if node else []
    pod = PodRequest(
        name="kernel",
        nodes=nodes,
        gpu=request.gpu,
        gpu_memory=request.gpu_memory,
        gpu_limit=request.gpu_limit,
    )
    return WorkloadRequest(
        id=workload_id,
        name=name or kernel_id,
        kernel_id=kernel_id,
        project=request.project,
        pods=[pod],
        priority_class=request.priority_class,
        node_pools=pools_of(request),
        user=user,
        queue_anyway=request.queue_anyway,
    )
