"""The unix socket (`socket_server`) and how kernels authenticate (`kernel_tokens`)."""
