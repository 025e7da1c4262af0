"""GPU devices: protocols and shared code in `base`, one folder per vendor (`nvidia`, `simulated`)."""
