"""What frameworks may take of the GPU: caps set and lowered while they run, caches given back,
devices chosen before CUDA looks.

A cap makes a cell fail with its framework's own out-of-memory error, and the kernel lives. It is
advice that works: a person may lower it further and is obeyed, and nothing that goes wrong in here
reaches a cell. CUDA is never touched in a process that has not initialised it, nor while the agent
keeps the process suspended (a driver call would then hold the interpreter until it resumes).

How: PyTorch's allocator asks its fraction before each new segment, CuPy's pool its limit, so both
follow at any time. JAX and TensorFlow read the environment once; there it is set where the person
did not. Frameworks that are imported later are met by a finder that looks at each import's name and
nothing else: at the start of a cell would be too late for `import torch; torch.empty(...)`.
"""

from __future__ import annotations

import contextlib
import gc
import os
import sys
import threading
from collections.abc import Callable, MutableMapping
from types import ModuleType
from typing import Any, Final

from ..connection import Json
from .cuda import context_exists, cuda_started, uuids

__all__ = ["DEFAULTS", "DROP_BUDGET_S", "FrameworkCaps", "net_of_context"]

DEFAULTS: Final = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false", "TF_FORCE_GPU_ALLOW_GROWTH": "true"}
"""A framework that takes three quarters of the GPU at its first tensor makes sharing a race."""
CONTEXT_MIB: Final = 512
"""A CUDA context with the libraries' workspaces: on the GPU, but not in what a framework's
allocator counts (0.3 to 0.6 GiB in PyTorch issues 58466, 69688 and 107667).
"""
DROP_BUDGET_S: Final = 0.25
WATCHED: Final = frozenset({"torch", "cupy", "jax"})
HIDES: Final = "GPUSHARE_HIDES_GPUS"
"""Set by the agent together with an empty CUDA_VISIBLE_DEVICES: not the person's choice, but ours
until there is a share.
"""
CUPY_LIMIT: Final = "CUPY_GPU_MEMORY_LIMIT"
JAX_FRACTION, JAX_OLD_FRACTION = "XLA_CLIENT_MEM_FRACTION", "XLA_PYTHON_CLIENT_MEM_FRACTION"
NEAR: Final = 1e-6
"""Fractions come back from PyTorch rounded to whole bytes."""


def net_of_context(cap_mib: int) -> int:
    """MiB that an allocator may count under this cap. A tiny cap keeps half: a framework with
    nothing at all cannot even say so.
    """
    return max(cap_mib - CONTEXT_MIB, cap_mib // 2)


class FrameworkCaps:
    """This process's. `told` comes from the link's thread, `before_cell` from the cell's; both
    return at once.
    """

    def __init__(self, environ: MutableMapping[str, str] = os.environ) -> None:
        self._environ = environ
        self.devices: list[Json] = []
        """What was told last."""
        self._share_mib: int | None = None
        """What the kernel goes by while nobody supervises it; None: by what it was told."""
        self._applying = threading.Lock()
        self._ours: dict[tuple[str, int], float] = {}
        self._theirs: dict[tuple[str, int], float] = {}
        self._set: dict[str, str] = {}
        """What was put into the environment here: only that may be changed again."""
        self._hooked: set[int] = set()
        self._finder = _Finder(self._imported)
        self._chooses = "CUDA_VISIBLE_DEVICES" not in environ or environ.get(HIDES) == "1"

    def start(self) -> None:
        """Set what is only read once, and watch imports."""
        for name, value in DEFAULTS.items():
            self._environ.setdefault(name, value)
        self._environ.setdefault(
            "CUDA_DEVICE_ORDER", "PCI_BUS_ID"
        )  # the order in which NVML, and so the agent, counts
        sys.meta_path.insert(0, self._finder)

    def stop(self) -> None:
        """Watch no longer; caps stay as they are."""
        with contextlib.suppress(ValueError):
            sys.meta_path.remove(self._finder)

    def told(self, devices: list[Json], *, running: bool) -> None:
        """What this process may hold per GPU now: `uuid`, `cap_mib`, `total_mib`, `visible`;
        nothing: nobody knows (no share, or suspended).
        """
        self.devices, self._share_mib = devices, None
        if (
            running and devices
            # an idle kernel allocates nothing: its caps wait for the next cell, and for its memory
            # to be there
        ):
            threading.Thread(target=self.apply, name="gpushare-caps", daemon=True).start()

    def before_cell(self, share_mib: int | None = None) -> None:
        """The cell may run: choose its GPUs if CUDA has not looked yet, and set the caps of what is
        loaded.

        `share_mib`: the agent is away. What it said last holds no more: a borrower that nobody
        supervises borrows no more, and an owner whose cap was low because others had borrowed may
        have its share again; so each device's cap is the share, until the agent speaks.
        """
        self._share_mib = share_mib
        self.apply()

    def apply(self) -> None:
        """Set what was told last. A framework's own trouble stays its own."""
        with self._applying:
            devices = self._now()
            if not devices:
                return
            self._choose(devices)
            self._cap_jax(devices)
            for name, cap in (("torch", self._cap_torch), ("cupy", self._cap_cupy)):
                module = sys.modules.get(name)
                if module is not None:
                    with contextlib.suppress(Exception):
                        cap(module, devices)

    def _now(self) -> list[Json]:
        devices, share = self.devices, self._share_mib
        return (
            devices
            if share is None
            else [one | {"cap_mib": min(share, one["total_mib"])} for one in devices]
        )

    def _imported(self, name: str) -> None:
        """The framework is loaded, and no line of the person's has used it yet."""
        if name == "torch":
            self._hook_torch(sys.modules["torch"])
        self.apply()

    # ---- which GPUs

    def _choose(self, devices: list[Json]) -> None:
        """Before CUDA looks, where the person has not chosen: its own GPU first, so that `cuda:0`
        is right in every program.
        """
        if self._chooses and not cuda_started():
            self._environ["CUDA_VISIBLE_DEVICES"] = devices[0]["visible"]

    # ---- how much

    def _allowed(
        self, framework: str, ordinal: int, wanted: float, current: float | None
    ) -> float | None:
        """The smaller of our cap and the person's own; None: it stands already. What differs from
        what we set last is theirs.
        """
        key = framework, ordinal
        if current is not None and abs(current - self._ours.get(key, -1)) > NEAR:
            self._theirs[key] = current
        target = min(wanted, self._theirs.get(key, wanted))
        if current is not None and abs(current - target) <= NEAR:
            return None
        self._ours[key] = target
        return target

    def _hook_torch(self, torch: Any) -> None:
        """The caps come with the initialisation of CUDA, whoever causes it: PyTorch keeps a list of
        calls for that moment.
        """
        if id(torch) not in self._hooked:
            self._hooked.add(id(torch))
            with contextlib.suppress(Exception):
                if not torch.cuda.is_initialized():
                    torch.cuda._lazy_call(self._torch_begins)

    def _torch_begins(self) -> None:
        with contextlib.suppress(Exception):  # inside `_lazy_init`: is_initialized() still says no
            self._cap_each_torch(sys.modules["torch"], self._now())

    def _cap_torch(self, torch: Any, devices: list[Json]) -> None:
        self._hook_torch(torch)
        if torch.cuda.is_initialized():
            self._cap_each_torch(torch, devices)

    def _cap_each_torch(self, torch: Any, devices: list[Json]) -> None:
        cuda = torch.cuda
        fraction_of = getattr(
            cuda.memory, "get_per_process_memory_fraction", None
        )  # since 2025; before, the last word counts
        for ordinal, device in _match(uuids(), devices):
            wanted = min(
                1.0,
                (net_of_context(device["cap_mib"]) << 20)
                / cuda.get_device_properties(ordinal).total_memory,
            )
            target = self._allowed(
                "torch", ordinal, wanted, fraction_of(ordinal) if fraction_of else None
            )
            if target is not None:
                cuda.set_per_process_memory_fraction(target, ordinal)

    def _cap_cupy(self, cupy: Any, devices: list[Json]) -> None:
        if not cuda_started():  # its pools read this when they are made
            self._set_environment(
                CUPY_LIMIT, str(min(net_of_context(device["cap_mib"]) for device in devices) << 20)
            )
            return
        pool = cupy.get_default_memory_pool()
        for ordinal, device in _match(uuids(), devices):
            if context_exists(ordinal):
                with cupy.cuda.Device(ordinal):
                    wanted, limit = net_of_context(device["cap_mib"]) << 20, pool.get_limit()
                    if str(limit) == self._set.get(CUPY_LIMIT):
                        self._ours.setdefault(("cupy", ordinal), limit)
                    target = self._allowed("cupy", ordinal, wanted, float(limit or 1 << 62))
                    if target is not None:
                        pool.set_limit(size=int(target))

    def _cap_jax(self, devices: list[Json]) -> None:
        """Read once, when its backend starts. Only when it is loaded: a person's own setting comes
        before the import, and both is an error.
        """
        if "jax" in sys.modules and JAX_OLD_FRACTION not in self._environ:
            fraction = min(
                net_of_context(device["cap_mib"]) / max(1, device["total_mib"])
                for device in devices
            )
            self._set_environment(JAX_FRACTION, f"{fraction:.4f}")
        if (
            "jax" in sys.modules
            and self._chooses
            and devices[0]["visible"].count(",") >= len(devices)
        ):
            with contextlib.suppress(Exception):
                _bound_jax(sys.modules["jax"], len(devices))

    def _set_environment(self, name: str, value: str) -> None:
        """Never over what the person set."""
        if self._environ.get(name) == self._set.get(name):
            self._environ[name] = self._set[name] = value

    # ---- caches

    def drop_caches(self, done: Callable[[], object], *, suspended: bool = False) -> None:
        """Give back what is cached, in a thread; `done` is called once, when it is given back or
        after the budget.
        """
        told = threading.Lock()

        def tell() -> None:
            if told.acquire(blocking=False):
                done()

        def work() -> None:
            with contextlib.suppress(Exception):
                if not suspended:
                    _drop()
            tell()

        late = threading.Timer(DROP_BUDGET_S, tell)
        late.daemon = True
        late.start()
        threading.Thread(target=work, name="gpushare-drop", daemon=True).start()


def _bound_jax(jax: Any, count: int) -> None:
    """The share's own GPUs, which come first: JAX makes a context on every GPU that it sees, and
    where memory can move all are visible.
    """
    if jax.config.read("jax_cuda_visible_devices") == "all":
        jax.config.update("jax_cuda_visible_devices", ",".join(map(str, range(count))))


def _drop() -> None:
    gc.collect()
    torch, cupy = sys.modules.get("torch"), sys.modules.get("cupy")
    if torch is not None:
        with contextlib.suppress(Exception):
            if torch.cuda.is_initialized():
                torch.cuda.empty_cache()
    if cupy is not None and cuda_started():
        with contextlib.suppress(Exception):
            for ordinal in range(cupy.cuda.runtime.getDeviceCount()):
                if context_exists(ordinal):
                    with cupy.cuda.Device(ordinal):
                        cupy.get_default_memory_pool().free_all_blocks()


def _match(here: list[str], devices: list[Json]) -> list[tuple[int, Json]]:
    """(ordinal in this process, device of the share), in the order of the share; in that of the
    ordinals where no name is known.
    """
    wanted = [(device["uuid"].partition("-")[2].replace("-", ""), device) for device in devices]
    by_uuid = [(here.index(name), device) for name, device in wanted if name in here]
    return by_uuid or list(zip(range(len(here)), devices, strict=False))


class _Finder:
    """First on `sys.meta_path`: finds nothing itself, but hears when a watched framework has been
    loaded.
    """

    def __init__(self, imported: Callable[[str], None]) -> None:
        self._imported = imported
        self._searching = threading.local()

    def find_spec(self, name: str, path: Any = None, target: ModuleType | None = None) -> Any:
        """None for everybody but the watched; for them, the real spec with a loader that calls
        back.
        """
        if name not in WATCHED or getattr(self._searching, "now", False):
            return None
        self._searching.now = True
        try:
            spec = next(
                (
                    found
                    for one in sys.meta_path
                    if one is not self and (found := _find(one, name, path, target))
                ),
                None,
            )
        finally:
            self._searching.now = False
        with contextlib.suppress(Exception):
            self._listen(spec, name)
        return spec

    def _listen(self, spec: Any, name: str) -> None:
        load = spec.loader.exec_module

        def exec_module(module: ModuleType) -> None:
            load(module)
            with contextlib.suppress(Exception):
                self._imported(name)

        spec.loader.exec_module = exec_module


def _find(finder: Any, name: str, path: Any, target: ModuleType | None) -> Any:
    find = getattr(finder, "find_spec", None)
    return find(name, path, target) if find is not None else None
