"""What a person reads: `output` (under the running cell), `text`, `html` and `charts`."""
