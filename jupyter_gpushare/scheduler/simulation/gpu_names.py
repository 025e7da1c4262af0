"""Device indexes for the GPU names in a scenario."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from jupyter_gpushare.core.model.events import PodEnded, PodPlaced
from jupyter_gpushare.core.model.model import DEFAULT_POOL, Spot

from ..config.documents import Document, FileError, Place
from .scenario_schemas import PodSchema, ScenarioSchema

__all__ = ["GpuNames"]

LONG_AGO: Final = -10 * 365 * 86_400_000
"""ms: the start of placed workloads without `started`. Earlier than any minimum runtime."""


class GpuNames:
    """Assigns a device index to every GPU name of the file, and collects errors."""

    def __init__(self, document: Document, shape: ScenarioSchema) -> None:
        self.document, self.shape = document, shape
        self.problems: list[FileError] = []
        self._sizes = {
            node.name: (node.gpus, node.gpus + sum(node.mig.values())) for node in shape.nodes
        }
        self._indexes = self._index()

    def facts(self) -> Iterator[PodPlaced | PodEnded]:
        """The placement of each placed pod, and the pods that have ended."""
        for i, workload in enumerate(self.shape.workloads):
            started = LONG_AGO if workload.started is None else workload.started
            for j, pod in enumerate(workload.pods):
                if pod.state in ("failed", "succeeded"):
                    yield PodEnded(
                        workload.name, pod.name, "failed" if pod.state == "failed" else "succeeded"
                    )
                elif pod.state in ("running", "releasing"):
                    spot = self._spot(pod, ("workloads", i, "pods", j))
                    yield PodPlaced(
                        workload.name,
                        pod.name,
                        spot,
                        started,
                        "running" if pod.state == "running" else "releasing",
                    )

    def _spot(self, pod: PodSchema, place: Place) -> Spot:
        node = pod.node or ""
        gpus, slots = self._sizes[node]
        if pod.devices > (slots if pod.mig else gpus):
            self._problem(
                (*place, "node"),
                f"the pod uses {pod.devices} GPUs, but the node {node!r} has"
                f" {slots if pod.mig else gpus}",
            )
        devices = tuple(sorted(self._indexes.get((node, gpu), slots) for gpu in pod.gpus))
        if devices and devices[-1] >= slots:
            self._problem((*place, "gpus"), f"names more GPUs of the node {node!r} than its {gpus}")
        return Spot(node, devices, DEFAULT_POOL)

    def _problem(self, place: Place, message: str) -> None:
        self.problems.append(self.document.problem(place, message))

    def _index(self) -> dict[tuple[str, str], int]:
        """The index of each named GPU. Names in the format of results (`n0/3`) keep their index, so
        that a snapshot is read without changes; other names get the free indexes in natural order.
        """
        named: dict[str, set[str]] = {}
        for workload in self.shape.workloads:
            for pod in workload.pods:
                if pod.node in self._sizes and pod.state in ("running", "releasing"):
                    named.setdefault(pod.node, set()).update(pod.gpus)
        indexes: dict[tuple[str, str], int] = {}
        for node, gpus in named.items():
            slots = self._sizes[node][1]
            own = {
                gpu: int(gpu.removeprefix(f"{node}/"))
                for gpu in gpus
                if re.fullmatch(re.escape(node) + "/[0-9]{1,6}", gpu)
            }
            own = {gpu: index for gpu, index in own.items() if index < slots}
            free = (index for index in range(slots + len(gpus)) if index not in set(own.values()))
            own.update(zip(sorted(gpus - own.keys(), key=_natural), free, strict=False))
            indexes.update({(node, gpu): index for gpu, index in own.items()})
        return indexes


def _natural(text: str) -> list[tuple[int, int, str]]:
    """`g2` before `g10`."""
    return [
        (1, int(part), "") if part.isdecimal() else (0, 0, part)
        for part in re.split(r"([0-9]{1,18})", text)
    ]
