"""What runs in a person's kernel: `%gpu`, the cell gate, the `gpu` functions, `simgpu`. Needs IPython and the standard library only."""
