"""The vendors that this agent knows: built-in ones, and those of installed packages.

A package adds a vendor by an entry point in the group `jupyter_gpushare.device_vendors` that names
a class with the methods of `Vendor`.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from importlib.metadata import entry_points
from typing import Final

from ..devices.base.protocols import Vendor
from ..devices.nvidia.vendor import NvidiaVendor
from ..devices.simulated.vendor import SimulatedVendor

__all__ = ["VENDOR_GROUP", "vendors"]

log = logging.getLogger("gpushare.agent")
VENDOR_GROUP: Final = "jupyter_gpushare.device_vendors"


def vendors() -> Iterator[Vendor]:
    """In the order in which they are asked: installed packages come before the built-in vendor of
    real GPUs.
    """
    yield SimulatedVendor()
    yield from _installed()
    yield NvidiaVendor()


def _installed() -> Iterator[Vendor]:
    for entry in sorted(entry_points(group=VENDOR_GROUP), key=lambda one: one.name):
        try:
            vendor: Vendor = entry.load()()
        except Exception:  # a broken package must not disable the other vendors
            log.exception("the device vendor %s cannot be loaded", entry.name)
        else:
            yield vendor
