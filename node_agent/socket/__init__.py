"""The unix socket of this machine (`socket_server`) and how kernels authenticate (`kernel_tokens`)."""
