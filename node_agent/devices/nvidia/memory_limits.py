"""Driver-enforced memory limits per kernel (drivers 615 and later): what nobody in the kernel can
undo. Soft is the share, hard the cap.

The driver keeps soft limits in every ancestor of a cgroup and does not see when the cgroup is
removed: a soft limit that is not zeroed before stays reserved for ever
(https://docs.nvidia.com/deploy/mps/latest/mpsv3-memory-partitioning.html). So what is about to be
set is written down first, and an agent that comes back zeroes what nobody needs any more. The files
of the kernel's `dmem` controller are never written here: the driver's view would drift from them.
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

__all__ = ["MemoryLimitCalls", "MemoryLimits"]

log = logging.getLogger("gpushare.agent")
MIB: Final = 1 << 20
TOO_OLD: Final = (
    "the driver has no memory limits, which came with driver 615 (CUDA 13.4); update it"
)


class MemoryLimitCalls(Protocol):
    """The two calls of `nvml.Nvml` that are needed here."""

    def supports_memory_limits(self) -> bool: ...
    def set_memory_limits(
        self, gpu: int, cgroup: str, soft: int | None, hard: int | None
    ) -> None: ...


class MemoryLimits:
    """The limits that this agent has set. All methods may block for as long as the driver does;
    call them in a thread.
    """

    def __init__(
        self,
        nvml: MemoryLimitCalls,
        record: Path,
        gpus: int,
        cgroups: Callable[[], str] = lambda: "",
    ) -> None:
        """`record`: the file in which what is set is written down first; `cgroups`: why there are
        no leaves, "" when there are.
        """
        self._nvml, self._record, self._gpus, self._cgroups = nvml, record, range(gpus), cgroups
        self._lock = threading.Lock()
        self._set: dict[str, dict[int, tuple[int, int]]] = {}
        self._noted: set[str] = self._read()
        self._said = ""
        self._problem = "" if nvml.supports_memory_limits() else TOO_OLD

    def problem(self) -> str:
        """Why this node has no tier `limit`; "" when it has."""
        return self._problem or self._cgroups()

    def try_out(self, cgroup: str) -> None:
        """Set and take back limits on an empty leaf: what the driver refuses now it would refuse
        later, whatever it says.
        """
        if self._problem:
            return
        if self.apply(cgroup, dict.fromkeys(self._gpus, (0, 0))):
            self.clear(cgroup)
        elif not self.problem():
            self._problem = f"the driver refuses memory limits on an empty cgroup ({self._said})"

    def apply(self, cgroup: str, limits: Mapping[int, tuple[int, int]]) -> bool:
        """{GPU: (soft, hard)} in MiB for everybody in this leaf; on every other GPU nothing.
        Whether they stand. Neither may be more than the GPU has: the driver refuses that (nvml.h,
        nvmlDeviceSetMemoryLimits_v1).

        A refusal is the tier's end until the agent starts anew (missing, forbidden), or this leaf's
        only (it is gone).
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
        """Zero what was set, before the leaf goes. What fails stays noted, and is tried again when
        the agent starts.
        """
        with self._lock:
            if cgroup not in self._noted and cgroup not in self._set:
                return
            failed = [gpu for gpu in self._gpus if not self._zero(gpu, cgroup)]
            self._set.pop(cgroup, None)
            if not failed:
                self._noted.discard(cgroup)
                self._write()

    def left_behind(self, alive: set[str]) -> list[str]:
        """Leaves of an earlier life that nobody needs any more: to be cleared and removed."""
        with self._lock:
            return sorted(self._noted - alive)

    # ---- the driver ------------------------------------------------------------------------------

    def _put(self, gpu: int, cgroup: str, soft: int, hard: int) -> bool:
        try:
            self._nvml.set_memory_limits(gpu, cgroup, soft, hard)
        except NvmlFailed as error:
            self._refused(gpu, cgroup, error)
            return False
        return True

    def _refused(self, gpu: int, cgroup: str, error: NvmlFailed) -> None:
        if error.is_missing:
            self._problem = f"the driver refuses memory limits on GPU {gpu} ({error.text}): a MIG instance, or memory accounting is off"
        elif error.is_refused:
            self._problem = (
                "the agent's user may not set memory limits; run it as root or with CAP_SYS_ADMIN"
            )
        elif error.is_not_found and Path(cgroup).is_dir():
            self._problem = (
                f"the driver does not know the cgroup {cgroup}: it needs the dmem controller (Linux 6.14) in every cgroup.subtree_control above "
                "it, or its own accounting (NVreg_RegistryDwords=RmMemacctMode=1)"
            )
        elif error.is_shut and Path(cgroup).is_dir():
            self._problem = f"the driver cannot open the cgroup {cgroup}: it has to be the path that the machine itself knows it by"
        self._said = error.text
        log.warning("memory limits of %s on GPU %d: %s", cgroup, gpu, error)

    def _zero(self, gpu: int, cgroup: str) -> bool:
        try:
            self._nvml.set_memory_limits(gpu, cgroup, 0, None)
        except NvmlFailed as error:
            gone = error.is_shut and not Path(cgroup).exists()
            if gone:
                log.error(
                    "the cgroup %s was removed before its limit on GPU %d was zeroed; its parents may keep the reservation",
                    cgroup,
                    gpu,
                )
            return gone or error.is_not_found or error.is_missing
        return True

    # ---- what was set ----------------------------------------------------------------------------

    def _note(self, cgroup: str) -> None:
        if cgroup not in self._noted:
            self._noted.add(cgroup)
            self._write()

    def _write(self) -> None:
        fresh = self._record.with_suffix(".new")
        try:
            fresh.write_text(json.dumps(sorted(self._noted)), encoding="utf-8")
            fresh.replace(self._record)
        except OSError as error:
            log.error("the record of memory limits %s cannot be written: %s", self._record, error)

    def _read(self) -> set[str]:
        with contextlib.suppress(OSError, ValueError):
            found = json.loads(self._record.read_text(encoding="utf-8"))
            return {name for name in found if isinstance(name, str) and os.path.isabs(name)}
        return set()
