"""Which GPUs this machine has: `inventory` chooses the vendor or simulated devices."""
