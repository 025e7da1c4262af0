"""Runs the self-test in the background and keeps its result: the capability tiers of this node."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from ...system.cgroups import Cgroups
from ..base.model import TIERS, Capabilities
from .checkpoint_client import CheckpointClient
from .memory_limits import MemoryLimits
from .nvml import Nvml, NvmlFailed
from .nvml_types import MIB
from .sampler import GpuSampler
from .selftest import MIG_PROBLEM, SelfTest, has_mps, is_postponed, run_self_test
from .selftest_cache import SelfTestCache

__all__ = ["CapabilityProbe"]

log = logging.getLogger("gpushare.agent")

UNTESTED: Final = "it is being tested"
FAILED: Final = "its test failed; see the agent's log"
RETRY_S: Final = 5.0
"""Between two attempts while no GPU has free memory for the test, or an MPS server runs."""


class CapabilityProbe:
    """The tiers of one node. `changed` is called after each change."""

    def __init__(
        self,
        nvml: Nvml,
        sampler: GpuSampler,
        checkpoints: CheckpointClient,
        limits: MemoryLimits,
        cgroups: Cgroups,
        cache: Path,
        changed: Callable[[], None],
    ) -> None:
        self._nvml, self._sampler, self._checkpoints = nvml, sampler, checkpoints
        self._limits, self._cgroups, self._changed = limits, cgroups, changed
        uuids = [gpu.uuid for gpu in nvml.gpus]
        self._cache = SelfTestCache(cache, nvml.driver, uuids)
        self._problems: dict[str, str] = dict.fromkeys(TIERS, UNTESTED)
        self._problems |= {"observe": "", "cooperate": ""}
        self._closed = threading.Event()
        self.version = 0

    def close(self) -> None:
        """Stop retrying."""
        self._closed.set()

    def has(self, tier: str) -> bool:
        """Whether the tier has been confirmed."""
        return not self._problems[tier]

    def capabilities(self) -> Capabilities:
        """The tiers, and for missing ones the reason; also for devices that lack a tier."""
        problems = {tier: problem for tier, problem in self._problems.items() if problem}
        partitioned = [str(gpu.index) for gpu in self._nvml.gpus if gpu.mig]
        if partitioned and self.has("suspend"):
            problems[f"suspend on GPU {', '.join(partitioned)}"] = MIG_PROBLEM
        return Capabilities([tier for tier in TIERS if self.has(tier)], problems)

    def start(self) -> None:
        """Test in a thread, and again while the test is postponed."""
        threading.Thread(target=self._run_repeatedly, name="gpushare-probe", daemon=True).start()

    def _run_repeatedly(self) -> None:
        # An agent that restarts while memory is being moved can continue at once.
        self._update(dict.fromkeys(self._cache.read(), ""))
        self._run_safely()
        while is_postponed(self._problems.values()) and not self._closed.wait(RETRY_S):
            if not has_mps(self._nvml.gpus):
                self._run_safely()

    def _run_safely(self) -> None:
        try:
            self.run()
        except Exception:  # the agent must survive every failure of the test
            log.exception("the self-test failed")
            untested = [tier for tier, problem in self._problems.items() if problem == UNTESTED]
            self._update(dict.fromkeys(untested, FAILED))

    def run(self) -> None:
        """Test once. Blocks for seconds."""
        sample = self._sampler.last
        test = SelfTest(
            gpus=self._nvml.gpus,
            checkpoints=self._checkpoints,
            limits=self._limits,
            cgroups=self._cgroups,
            attribution_problem=self._sampler.attribution_problem(),
            free={gpu: memory.free // MIB for gpu, memory in sample.memory.items()},
            proven=self._cache.read(),
            in_use=any(sample.account.held.values()),
            pids=self._pids,
        )
        self._update(run_self_test(test))
        self._cache.write(tier for tier in ("suspend", "relocate") if self.has(tier))

    def _pids(self, gpu: int) -> list[int] | None:
        with contextlib.suppress(NvmlFailed):
            return [process.pid for process in self._nvml.processes(gpu)]
        return None

    def _update(self, problems: Mapping[str, str]) -> None:
        if problems.items() <= self._problems.items():
            return
        self._problems = {**self._problems, **problems}
        self.version += 1
        self._changed()
