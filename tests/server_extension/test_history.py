"""Samples of a kernel's GPU memory over time."""

from __future__ import annotations

from msgspec import structs

from jupyter_gpushare.messages import Kernel, MemoryMib, Share, stamp
from jupyter_gpushare.server_extension.kernels.kernel_history import MOST_POINTS, KernelHistories

HOUR = 3600 * 1000


def kernel(used=0, **more):
    return Kernel(
        kernel_id="k",
        state="attached",
        request=Share(gpu=0.5),
        memory_mib=MemoryMib(guaranteed=40, used=used),
        **more,
    )


def used(histories, now, minutes=60, last=0):
    return [sample.used_mib for sample in histories.of(kernel(last), now, minutes).samples]


def test_samples_are_oldest_first_and_end_with_the_present():
    histories = KernelHistories()
    for i in range(3):
        histories.sample(i * 5000, [kernel(i)])
    assert used(histories, 12_000, last=9) == [0, 1, 2, 9]


def test_only_the_requested_minutes():
    histories = KernelHistories()
    histories.sample(0, [kernel(1)])
    histories.sample(2 * HOUR, [kernel(2)])
    assert used(histories, 2 * HOUR, minutes=60, last=3) == [2, 3]


def test_a_day_fits_into_one_answer():
    histories = KernelHistories()
    for i in range(24 * 720):
        histories.sample(i * 5000, [kernel(i)])
    assert len(used(histories, 24 * HOUR, minutes=1440)) == MOST_POINTS + 1


def test_a_state_that_lasts_less_than_a_sample_is_not_kept():
    """A request that is granted within a moment is no wait."""
    histories = KernelHistories()
    histories.changed(0, structs.replace(kernel(), state="pending"))
    histories.changed(30, structs.replace(kernel(), state="granted"))
    histories.changed(60, kernel(1))
    histories.changed(70, kernel(2))
    samples = histories.of(kernel(3), 5000, 60).samples
    assert [(one.state, one.used_mib) for one in samples] == [("attached", 1), ("attached", 3)]
    assert samples[0].time == stamp(0)


def test_the_samples_of_an_ended_kernel_are_dropped():
    histories = KernelHistories()
    histories.sample(0, [kernel(1)])
    histories.sample(5000, [])
    histories.sample(10_000, [kernel(2)])
    assert used(histories, 11_000, last=3) == [2, 3]


def test_a_kernel_without_samples_has_only_the_present():
    assert used(KernelHistories(), 0, last=7) == [7]
