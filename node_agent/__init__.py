"""The node agent: the only place that touches GPUs and kernel processes. One per GPU node."""
