"""A person's request for one kernel, checked here as far as that needs no scheduler, and as the
workload that the scheduler sees. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from difflib import get_close_matches
from typing import Final

from jupyter_gpushare.core.model.amounts import GPU
from jupyter_gpushare.core.model.errors import InvalidInput
from jupyter_gpushare.core.model.units import read_gpu, read_memory
from jupyter_gpushare.messages import KernelRequest, PodRequest, Share, WorkloadRequest, convert

__all__ = [
    "CONFIG_FIELDS",
    "checked",
    "from_config",
    "passed_over",
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
)


def from_config(config: dict[str, object]) -> KernelRequest | None:
    """The request in a kernelspec's `config`; None when it asks for no GPU (nothing, or `gpu: 0`
    alone).

    Raises:
        InvalidInput: with the field's name.
    """
    given = {name: value for name, value in config.items() if value not in (None, "", [])}
    if not {"preset", "gpu", "gpu_memory", "gpu_limit"} & given.keys():
        return None
    request = convert(KernelRequest, given)
    if request.preset is not None:
        return request  # what it stands for is the server's to say
    return None if given in ({"gpu": 0}, {"gpu": "0"}) else checked(request)


def passed_over(config: Mapping[str, object]) -> str:
    """A sentence about the keys of a kernelspec's `config` that mean nothing here; "": there are
    none.

    Said, and not refused: a kernelspec may carry keys of a newer version, and its kernels shall
    start.
    """
    unknown = sorted(str(key) for key in config if key not in CONFIG_FIELDS)
    if not unknown:
        return ""
    close = [(key, get_close_matches(key, CONFIG_FIELDS, n=1)) for key in unknown]
    words = [
        f"{key!r}" + (f" (did you mean {found[0]!r}?)" if found else "") for key, found in close
    ]
    what = f"key {words[0]} is" if len(words) == 1 else f"keys {', '.join(words)} are"
    return f"The kernelspec's {what} not known and {'was' if len(words) == 1 else 'were'} passed over; known: {', '.join(CONFIG_FIELDS)}."


def checked(request: KernelRequest) -> KernelRequest:
    """The same request.

    Raises:
        InvalidInput: it makes no sense whatever the cluster looks like; with the field's name.
    """
    if (request.gpu is None) == (request.gpu_memory is None):
        raise InvalidInput(
            "gpu must be given, such as 0.5, or gpu_memory, such as 20GiB, and not both",
            field="gpu",
        )
    if request.gpu is not None:
        _amount("gpu", lambda: read_gpu(request.gpu, what="gpu"), whole_above_one=True)
    if request.gpu_memory is not None:
        _amount("gpu_memory", lambda: read_memory(request.gpu_memory, what="gpu_memory"))
    if request.gpu_limit is not None:
        limit = _amount("gpu_limit", lambda: read_gpu(request.gpu_limit, what="gpu_limit"))
        if request.gpu is not None and limit < read_gpu(request.gpu):
            raise InvalidInput(
                f"gpu_limit must not be less than gpu, got {request.gpu_limit} and {request.gpu}",
                field="gpu_limit",
            )
    return request


def _amount(field: str, read: Callable[[], int], *, whole_above_one: bool = False) -> int:
    try:
        amount = read()
    except InvalidInput as error:
        raise InvalidInput(error.message, field=field) from None
    if amount <= 0:
        raise InvalidInput(f"{field} must be more than 0", field=field)
    if whole_above_one and amount > GPU and amount % GPU:
        raise InvalidInput(
            f"{field} above 1 must be a whole number of GPUs, got {amount / GPU:g}", field=field
        )
    return amount


def pools_of(request: KernelRequest) -> list[str]:
    """Node pools in order; a text is a list with commas."""
    pools = request.node_pools
    return (
        [name.strip() for name in pools.split(",") if name.strip()]
        if isinstance(pools, str)
        else list(pools or [])
    )


def shares(request: KernelRequest) -> tuple[Share, Share]:
    """What was asked and the burst ceiling, as numbers; of a checked request."""
    gpu = None if request.gpu is None else read_gpu(request.gpu) / GPU
    memory = None if request.gpu_memory is None else read_memory(request.gpu_memory)
    limit = None if request.gpu_limit is None else read_gpu(request.gpu_limit) / GPU
    return Share(gpu=gpu, gpu_memory_mib=memory), Share(gpu=limit)


def same(one: KernelRequest, other: KernelRequest) -> bool:
    """Whether two checked requests ask for the same, however the amounts are written."""
    names = ("project", "priority_class")
    plain = all(getattr(one, name) == getattr(other, name) for name in names)
    return plain and shares(one) == shares(other) and pools_of(one) == pools_of(other)


def workload(
    request: KernelRequest,
    workload_id: str,
    *,
    kernel_id: str,
    name: str,
    node: str,
    user: str | None,
) -> WorkloadRequest:
    """One kernel is one workload with one pod that must run where its process is."""
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
    )
