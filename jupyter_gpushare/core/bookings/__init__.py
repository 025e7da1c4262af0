"""Bookings: GPUs in a window of time.

Windows are half-open and in UTC, so that one booking may start when another one ends, and so that
changes of the clock neither hide an overlap nor invent one. What repeats is a wall time in a zone
with an elapsed duration (`recurrence`). Whether bookings fit beside quotas is decided by packing
(`packing`), at every instant (`calendar`), from what is there between one change and the next
(`timeline`).
"""
