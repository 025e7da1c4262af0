"""Memory limits per kernel that the driver enforces (drivers 615 and later), and that no program in
the kernel can remove. The soft limit is the share, the hard limit the cap.

The driver applies soft limits to every ancestor of a cgroup, and does not notice that a cgroup is
removed: a soft limit that was not reset before remains reserved
(https://docs.nvidia.com/deploy/mps/latest/mpsv3-memory-partitioning.html). Limits are therefore
recorded before they are set, and a restarted agent resets those that are no longer needed. The
files of the `dmem` controller are never written here: the driver's view would diverge from them.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, Protocol

from .nvml import NvmlFailed
from .nvml_types import MIB

__all__ = ["MemoryLimitCalls", "MemoryLimits"]

log = logging.getLogger("gpushare.agent")
TOO_OLD: Final = (
    "the driver has no memory limits, which require driver 615 (CUDA 13.4); update the driver"
)


class MemoryLimitCalls(Protocol):
    """The calls of `nvml.Nvml` that are used here."""

    def supports_memory_limits(self) -> bool: ...
    def set_memory_limits(
        self, gpu: int, cgroup: str, soft: int | None, hard: int | None
    ) -> None: ...


class MemoryLimits:
    """The limits that this agent has set. Methods may block; call them in a thread."""

    def __init__(
        self,
        nvml: MemoryLimitCalls,
        record: Path,
        gpus: int,
        cgroup_problem: Callable[[], str] = lambda: "",
    ) -> None:
        """`record`: file of the cgroups with limits; `cgroup_problem`: why there are no cgroups, ""
        when there are.
        """
        self._nvml, self._record, self._gpus = nvml, record, range(gpus)
        self._cgroup_problem = cgroup_problem
        self._lock = threading.Lock()
        self._set: dict[str, dict[int, tuple[int, int]]] = {}
        self._recorded: set[str] = self._read()
        self._last_error = ""
        self._problem = "" if nvml.supports_memory_limits() else TOO_OLD

    def problem(self) -> str:
        """Why this node lacks the tier `limit`; "": it has it."""
        return self._problem or self._cgroup_problem()

    def test(self, cgroup: str) -> None:
        """Set and reset limits on an empty cgroup: any refusal means that the tier is missing."""
        if self._problem:
            return
        if self.apply(cgroup, dict.fromkeys(self._gpus, (0, 0))):
            self.clear(cgroup)
        elif not self.problem():
            refusal = f"the driver refuses memory limits on an empty cgroup ({self._last_error})"
            self._problem = refusal

    def apply(self, cgroup: str, limits: Mapping[int, tuple[int, int]]) -> bool:
        """Set {GPU: (soft, hard)} in MiB for all processes of a cgroup, and zero on every other
        GPU. Returns whether all are set. Neither limit may exceed the memory of the GPU (nvml.h,
        nvmlDeviceSetMemoryLimits_v1).

        A refusal disables the tier until the agent restarts (unsupported, forbidden), or affects
        this cgroup only (it was removed).
        """
        if not cgroup or self.problem():
            return False
        with self._lock:
            self._note(cgroup)
            known = self._set.setdefault(cgroup, {})
            for gpu in self._gpus:
                soft, hard = limits.get(gpu, (0, 0))
                soft = min(soft, hard)
                if known.get(gpu) != (soft, hard):
                    if not self._put(gpu, cgroup, soft * MIB, hard * MIB):
                        return False
                    known[gpu] = soft, hard
        return True

    def clear(self, cgroup: str) -> None:
        """Reset the limits before the cgroup is removed. Failures stay recorded and are retried
        when the agent restarts.
        """
        with self._lock:
            if cgroup not in self._recorded and cgroup not in self._set:
                return
            failed = [gpu for gpu in self._gpus if not self._reset(gpu, cgroup)]
            self._set.pop(cgroup, None)
            if not failed:
                self._recorded.discard(cgroup)
                self._write()

    def orphaned(self, alive: set[str]) -> list[str]:
        """Cgroups with recorded limits, without those in `alive`."""
        with self._lock:
            return sorted(self._recorded - alive)

    # ---- the driver ------------------------------------------------------------------------------

    def _put(self, gpu: int, cgroup: str, soft: int, hard: int) -> bool:
        try:
            self._nvml.set_memory_limits(gpu, cgroup, soft, hard)
        except NvmlFailed as error:
            self._problem = _lasting_problem(gpu, cgroup, error) or self._problem
            self._last_error = error.text
            log.warning("memory limits of %s on GPU %d: %s", cgroup, gpu, error)
            return False
        return True

    def _reset(self, gpu: int, cgroup: str) -> bool:
        try:
            self._nvml.set_memory_limits(gpu, cgroup, 0, None)
        except NvmlFailed as error:
            removed = error.is_os_error and not Path(cgroup).exists()
            if removed:
                log.error(
                    "the cgroup %s was removed before its limit on GPU %d was reset; its parent "
                    "cgroups may keep the reservation",
                    cgroup,
                    gpu,
                )
            return removed or error.is_not_found or error.is_missing
        return True

    # ---- the record ------------------------------------------------------------------------------

    def _note(self, cgroup: str) -> None:
        if cgroup not in self._recorded:
            self._recorded.add(cgroup)
            self._write()

    def _write(self) -> None:
        fresh = self._record.with_suffix(".new")
        try:
            fresh.write_text(json.dumps(sorted(self._recorded)), encoding="utf-8")
            fresh.replace(self._record)
        except OSError as error:
            log.error("the record of memory limits %s cannot be written: %s", self._record, error)

    def _read(self) -> set[str]:
        with contextlib.suppress(OSError, ValueError):
            found = json.loads(self._record.read_text(encoding="utf-8"))
            return {name for name in found if isinstance(name, str) and os.path.isabs(name)}
        return set()


def _lasting_problem(gpu: int, cgroup: str, error: NvmlFailed) -> str:
    """Why limits fail on this node in general; "": they fail for this cgroup only."""
    if error.is_missing:
        return (
            f"the driver refuses memory limits on GPU {gpu} ({error.text}): "
            "a MIG instance, or memory accounting is off"
        )
    if error.is_refused:
        return "the agent's user may not set memory limits; run it as root or with CAP_SYS_ADMIN"
    if error.is_not_found and Path(cgroup).is_dir():
        return (
            f"the driver does not know the cgroup {cgroup}: it requires the dmem controller "
            "(Linux 6.14) in every cgroup.subtree_control above it, or its own accounting "
            "(NVreg_RegistryDwords=RmMemacctMode=1)"
        )
    if error.is_os_error and Path(cgroup).is_dir():
        return (
            f"the driver cannot open the cgroup {cgroup}: "
            "the path must be valid on the host, outside containers"
        )
    return ""
