"""What agents measured of their GPUs and machines in the last hour: one ring buffer per series, in
memory only.
"""

from __future__ import annotations

from array import array
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Final

from jupyter_gpushare import messages as m

__all__ = ["CAPACITY", "EVERY_MS", "MOST_GPUS", "MeasurementHistory"]

EVERY_MS: Final = 5_000
"""As often as agents report measurements."""
CAPACITY: Final = 720
"""Samples per series: one hour. Each takes 4 bytes, so that a GPU takes 12 KiB."""
MOST_GPUS: Final = 64
"""GPUs in one answer."""
MOST_POINTS: Final = 360
"""Samples per series in one answer: more than a chart of usual width can show."""
UNKNOWN: Final = -1

Key = tuple[str, str, m.SeriesMetric]
"""Node, UUID of the GPU ("": the machine), metric."""
SCALES: Final[Mapping[m.SeriesMetric, int]] = {"utilization": 100, "cpu": 100}
"""Series are integers; fractions are kept in per cent."""


class MeasurementHistory:
    """Times are ms since the epoch. Time must not go back: earlier samples are ignored."""

    def __init__(self) -> None:
        self._times: list[int] = []
        self._next = 0
        """Where the next sample goes in every ring, once they are full."""
        self._rings: dict[Key, array[int]] = {}
        self._totals: dict[Key, int | None] = {}

    def sample(
        self, now: int, reports: Mapping[str, m.NodeReport], connected: Collection[str]
    ) -> None:
        """Called at every tick; takes a sample when one is due. A node without a connection has
        none. Series of nodes and GPUs that are gone are dropped.
        """
        if self._times and now - self._newest < EVERY_MS:
            return
        slot = self._take_slot(now)
        values: dict[Key, tuple[int, int | None]] = {}
        for node, report in reports.items():
            for gpu, metric, value, total in _measured(report):
                values[node, gpu, metric] = (value if node in connected else UNKNOWN, total)
        for key in self._rings.keys() - values.keys():
            del self._rings[key], self._totals[key]
        for key, (value, total) in values.items():
            ring = self._rings.get(key)
            if ring is None:
                ring = self._rings[key] = array("i", [UNKNOWN]) * CAPACITY
            ring[slot], self._totals[key] = value, total

    def read(
        self, now: int, *, minutes: int, since: int | None, nodes: Collection[str] | None
    ) -> m.NodeHistory:
        """The samples of the last `minutes`, or after `since`, oldest first. `nodes`: only these;
        None: all, with at most `MOST_GPUS` GPUs.
        """
        start = now - minutes * 60_000
        if since is not None:
            start = max(start, since + 1)
        order = [*range(self._next, len(self._times)), *range(self._next)]
        slots = [slot for slot in order if self._times[slot] >= start]
        step = -(-len(slots) // MOST_POINTS) or 1
        slots = slots[::-1][::step][::-1]  # with the newest
        keys = [key for key in self._rings if nodes is None or key[0] in nodes]
        gpus = list(dict.fromkeys(key[:2] for key in keys if key[1]))
        shown = {*gpus[:MOST_GPUS], *((node, "") for node, _ in gpus[:MOST_GPUS])}
        return m.NodeHistory(
            times=[m.stamp(self._times[slot]) for slot in slots],
            series=list(self._series((key for key in keys if key[:2] in shown), slots)),
            left_out=max(0, len(gpus) - MOST_GPUS),
        )

    @property
    def _newest(self) -> int:
        return self._times[self._next - 1]

    def _take_slot(self, now: int) -> int:
        if len(self._times) < CAPACITY:
            self._times.append(now)
            return len(self._times) - 1
        slot, self._next = self._next, (self._next + 1) % CAPACITY
        self._times[slot] = now
        return slot

    def _series(self, keys: Iterable[Key], slots: list[int]) -> Iterator[m.MeasuredSeries]:
        for key in keys:
            ring, scale = self._rings[key], SCALES.get(key[2], 1)
            values = [None if ring[slot] < 0 else ring[slot] / scale for slot in slots]
            node, gpu, metric = key
            yield m.MeasuredSeries(
                node=node, gpu=gpu, metric=metric, total=self._totals[key], values=values
            )


def _measured(report: m.NodeReport) -> Iterator[tuple[str, m.SeriesMetric, int, int | None]]:
    """GPU, metric, value and total of everything that is measured on this node."""
    for device in report.devices:
        for metric, value, total in _of_device(device):
            if value is not None:
                yield device.uuid, metric, round(value * SCALES.get(metric, 1)), total
    if report.host_cpu is not None:
        yield "", "cpu", round(report.host_cpu * SCALES["cpu"]), None
    if report.host_used_mib is not None:
        yield "", "host_memory", report.host_used_mib, report.host_memory_mib
    yield "", "saved", report.saved_mib, _budget(report)


def _of_device(
    device: m.DeviceReport,
) -> tuple[tuple[m.SeriesMetric, float | None, int | None], ...]:
    return (
        ("utilization", device.utilization, None),
        ("memory", device.used_mib, device.total_mib),
        ("temperature", device.temperature_c, None),
        ("power", device.power_w, None),
    )


def _budget(report: m.NodeReport) -> int | None:
    """What saved images may use in all now."""
    left = report.saved_left_mib
    return None if left is None else report.saved_mib + left
