"""GPU devices: protocols in `base`, one package per vendor (`nvidia`, `simulated`)."""
