"""Finds the devices of this machine: `vendors` lists the vendors, `inventory` asks them."""
