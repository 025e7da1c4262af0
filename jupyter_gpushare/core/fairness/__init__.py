"""Dividing resources among queues (`fairshare`), what each queue used over time (`usage`), and the
order of people inside a project (`people`).
"""
