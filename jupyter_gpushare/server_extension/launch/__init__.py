"""How a kernel's cells are made to ask before they run, decided once per launch.

`launch_plan` decides by the kernelspec's command. `bootstrap` hands our code to an IPython kernel,
`proxied_provisioner` starts a kernel behind a proxy (`proxy_process`). `kernel_host` is what the
provisioner calls, in a server and in a tool.
"""
