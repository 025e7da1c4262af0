"""GPU devices: protocols and shared code in `base`, one package per vendor (`nvidia`, `simulated`)."""
