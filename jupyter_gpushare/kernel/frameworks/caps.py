"""GPU memory limits of the frameworks in this process, changed while they run, and the GPUs that
CUDA sees.

Over its cap a cell fails with its framework's own out-of-memory error, and the kernel lives. A
person may set lower limits, which are kept. Errors in this module never reach a cell. CUDA is not
touched in a process that has not initialised it, nor while the agent keeps the process suspended,
when a driver call would block the interpreter.

PyTorch's allocator reads its fraction before each new segment, CuPy's pool its limit, so both
follow at any time. JAX and TensorFlow read the environment once; it is set there unless the person
has set it. An import hook finds frameworks that are imported later, because the start of the next
cell would be too late for `import torch; torch.empty(...)`.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections.abc import Callable, MutableMapping
from typing import Any, Final

from ..kernel_body import Json
from .caches import drop_caches
from .cuda import context_exists, cuda_started, match_devices, uuids
from .import_hook import ImportHook

__all__ = ["DEFAULTS", "FrameworkCaps", "net_of_context"]

DEFAULTS: Final = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false", "TF_FORCE_GPU_ALLOW_GROWTH": "true"}
"""Without these a framework reserves most of the GPU with its first tensor."""
CONTEXT_MIB: Final = 512
"""A CUDA context with the workspaces of its libraries: on the GPU, but not counted by a framework's
allocator (0.3 to 0.6 GiB: https://github.com/pytorch/pytorch/issues/58466, 69688 and 107667).
"""
HIDES: Final = "GPUSHARE_HIDES_GPUS"
"""Set by the agent together with an empty CUDA_VISIBLE_DEVICES, which is then not the choice of the
person.
"""
CUPY_LIMIT: Final = "CUPY_GPU_MEMORY_LIMIT"
JAX_FRACTION, JAX_OLD_FRACTION = "XLA_CLIENT_MEM_FRACTION", "XLA_PYTHON_CLIENT_MEM_FRACTION"
NEAR: Final = 1e-6
"""PyTorch returns fractions rounded to whole bytes."""


def net_of_context(cap_mib: int) -> int:
    """MiB that an allocator may count under this cap. A small cap keeps half: a framework needs
    some memory to report an error.
    """
    return max(cap_mib - CONTEXT_MIB, cap_mib // 2)


class FrameworkCaps:
    """One per process. `set_devices` is called in the connection's thread, `before_cell` in the
    cell's; both return at once.
    """

    def __init__(self, environ: MutableMapping[str, str] = os.environ) -> None:
        self._environ = environ
        self.devices: list[Json] = []
        """The devices that the agent sent last."""
        self._share_mib: int | None = None
        """The cap per device while the agent is not connected; None: the caps of `devices`."""
        self._applying = threading.Lock()
        self._ours: dict[tuple[str, int], float] = {}
        self._theirs: dict[tuple[str, int], float] = {}
        self._set: dict[str, str] = {}
        """Environment variables that were set here: only these may be changed."""
        self._hooked: set[int] = set()
        self._import_hook = ImportHook(self._imported)
        self._chooses = "CUDA_VISIBLE_DEVICES" not in environ or environ.get(HIDES) == "1"

    def start(self) -> None:
        """Set what frameworks read once, and watch imports."""
        for name, value in DEFAULTS.items():
            self._environ.setdefault(name, value)
        # the order in which NVML, and so the agent, counts
        self._environ.setdefault("CUDA_DEVICE_ORDER", "PCI_BUS_ID")
        self._import_hook.install()

    def stop(self) -> None:
        """Stop watching imports. The caps stay."""
        self._import_hook.uninstall()

    def set_devices(self, devices: list[Json], *, running: bool) -> None:
        """What this process may use per GPU now: `uuid`, `cap_mib`, `total_mib`, `visible`. No
        devices: no share, or suspended.
        """
        self.devices, self._share_mib = devices, None
        # An idle kernel allocates nothing: its caps are set by the next cell, when its memory is
        # restored.
        if running and devices:
            threading.Thread(target=self.apply, name="gpushare-caps", daemon=True).start()

    def before_cell(self, share_mib: int | None = None) -> None:
        """The cell may run: choose its GPUs if CUDA has not started, and set the caps.

        `share_mib`: the agent is not connected, so the caps that it sent last are out of date. A
        borrower may borrow no more, and the owner of a low cap may use its share again: each
        device's cap is the share until the agent is back.
        """
        self._share_mib = share_mib
        self.apply()

    def apply(self) -> None:
        """Set the current caps. Errors of a framework are ignored."""
        with self._applying:
            devices = self._capped_devices()
            if not devices:
                return
            self._choose(devices)
            self._cap_jax(devices)
            for name, cap in (("torch", self._cap_torch), ("cupy", self._cap_cupy)):
                module = sys.modules.get(name)
                if module is not None:
                    with contextlib.suppress(Exception):
                        cap(module, devices)

    def drop_caches(self, done: Callable[[], object], *, suspended: bool = False) -> None:
        """Return cached memory; see `caches.drop_caches`."""
        drop_caches(done, suspended=suspended)

    def _capped_devices(self) -> list[Json]:
        share = self._share_mib
        if share is None:
            return self.devices
        return [{**one, "cap_mib": min(share, one["total_mib"])} for one in self.devices]

    def _imported(self, name: str) -> None:
        if name == "torch":
            self._hook_torch(sys.modules["torch"])
        self.apply()

    # ---- which GPUs

    def _choose(self, devices: list[Json]) -> None:
        """Before CUDA starts, unless the person has chosen: the kernel's own GPU first, so that
        `cuda:0` is right in every program.
        """
        if self._chooses and not cuda_started():
            self._environ["CUDA_VISIBLE_DEVICES"] = devices[0]["visible"]

    # ---- how much

    def _new_limit(
        self, framework: str, ordinal: int, wanted: float, current: float | None
    ) -> float | None:
        """The smaller of our cap and the person's own; None: it is set already. A limit that
        differs from our last one is the person's.
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
        """Set the caps when CUDA is initialised: PyTorch keeps a list of calls for that moment."""
        if id(torch) not in self._hooked:
            self._hooked.add(id(torch))
            with contextlib.suppress(Exception):
                if not torch.cuda.is_initialized():
                    torch.cuda._lazy_call(self._torch_initialises)

    def _torch_initialises(self) -> None:
        # inside of `_lazy_init`, where is_initialized() is still False
        with contextlib.suppress(Exception):
            self._cap_torch_devices(sys.modules["torch"], self._capped_devices())

    def _cap_torch(self, torch: Any, devices: list[Json]) -> None:
        self._hook_torch(torch)
        if torch.cuda.is_initialized():
            self._cap_torch_devices(torch, devices)

    def _cap_torch_devices(self, torch: Any, devices: list[Json]) -> None:
        cuda = torch.cuda
        # PyTorch since 2025; without it the limit that was set last applies
        fraction_of = getattr(cuda.memory, "get_per_process_memory_fraction", None)
        for ordinal, device in match_devices(uuids(), devices):
            total = cuda.get_device_properties(ordinal).total_memory
            wanted = min(1.0, (net_of_context(device["cap_mib"]) << 20) / total)
            current = fraction_of(ordinal) if fraction_of else None
            limit = self._new_limit("torch", ordinal, wanted, current)
            if limit is not None:
                cuda.set_per_process_memory_fraction(limit, ordinal)

    def _cap_cupy(self, cupy: Any, devices: list[Json]) -> None:
        if not cuda_started():  # its pools read this when they are created
            smallest = min(net_of_context(device["cap_mib"]) for device in devices)
            self._set_environment(CUPY_LIMIT, str(smallest << 20))
            return
        pool = cupy.get_default_memory_pool()
        for ordinal, device in match_devices(uuids(), devices):
            if not context_exists(ordinal):
                continue
            with cupy.cuda.Device(ordinal):
                wanted, current = net_of_context(device["cap_mib"]) << 20, pool.get_limit()
                if str(current) == self._set.get(CUPY_LIMIT):
                    self._ours.setdefault(("cupy", ordinal), current)
                limit = self._new_limit("cupy", ordinal, wanted, float(current or 1 << 62))
                if limit is not None:
                    pool.set_limit(size=int(limit))

    def _cap_jax(self, devices: list[Json]) -> None:
        """JAX reads the fraction once, when its backend starts. Set only after the import, because
        the person's own setting comes before it, and JAX refuses both variables together.
        """
        if "jax" not in sys.modules:
            return
        if JAX_OLD_FRACTION not in self._environ:
            fraction = min(
                net_of_context(device["cap_mib"]) / max(1, device["total_mib"])
                for device in devices
            )
            self._set_environment(JAX_FRACTION, f"{fraction:.4f}")
        if self._chooses and devices[0]["visible"].count(",") >= len(devices):
            with contextlib.suppress(Exception):
                _bound_jax(sys.modules["jax"], len(devices))

    def _set_environment(self, name: str, value: str) -> None:
        """Set a variable, unless the person has set it."""
        if self._environ.get(name) == self._set.get(name):
            self._environ[name] = self._set[name] = value


def _bound_jax(jax: Any, count: int) -> None:
    """Limit JAX to the GPUs of the share, which come first. JAX creates a context on every GPU that
    it sees, and where memory can be moved it sees all.
    """
    if jax.config.read("jax_cuda_visible_devices") == "all":
        jax.config.update("jax_cuda_visible_devices", ",".join(map(str, range(count))))
