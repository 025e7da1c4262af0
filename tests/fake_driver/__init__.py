"""A machine's GPUs and driver, played by two small C libraries over one shared file."""
