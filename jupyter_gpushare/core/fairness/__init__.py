"""Dividing resources among queues (`fairshare`), and what each queue used over time (`usage`)."""
