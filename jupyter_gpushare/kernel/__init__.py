"""What runs in a person's kernel: `%gpu`, the cell gate, the `gpu` functions, `simgpu`. Needs IPython and the standard library only.

    IPython calls         `loading` (`%load_ext`), `extension` (the hooks, and what the agent says unasked)
    people call           `magics` (`%gpu`), `gpu` (the same as functions), `panel` (a widget), `simgpu` (a simulated GPU)
    the agent             `link` (the socket), `gate` (may this cell run?), `asking` (a question and its answer), `frameworks` and `cuda` (caps)
    what is shown         `screen` (under the cell), `view` (text), `cards` and `curves` (HTML)
"""
