"""What one kernel held over time, as its Jupyter server remembers it."""

from __future__ import annotations

from jupyter_gpushare.messages import Kernel, MemoryMib, Share
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


def test_samples_come_oldest_first_and_end_with_what_is_true_now():
    it = KernelHistories()
    for i in range(3):
        it.sample(i * 5000, [kernel(i)])
    assert used(it, 12_000, last=9) == [0, 1, 2, 9]


def test_only_as_far_back_as_was_asked():
    it = KernelHistories()
    it.sample(0, [kernel(1)])
    it.sample(2 * HOUR, [kernel(2)])
    assert used(it, 2 * HOUR, minutes=60, last=3) == [2, 3]


def test_a_day_fits_into_one_answer():
    it = KernelHistories()
    for i in range(24 * 720):
        it.sample(i * 5000, [kernel(i)])
    assert len(used(it, 24 * HOUR, minutes=1440)) == MOST_POINTS + 1


def test_a_kernel_that_is_gone_is_forgotten():
    it = KernelHistories()
    it.sample(0, [kernel(1)])
    it.sample(5000, [])
    it.sample(10_000, [kernel(2)])
    assert used(it, 11_000, last=3) == [2, 3]


def test_a_kernel_that_was_never_sampled_has_only_its_present():
    assert used(KernelHistories(), 0, last=7) == [7]
