"""In the Jupyter server: REST and stream, the kernel provisioner, and the lines to scheduler and node agent."""
