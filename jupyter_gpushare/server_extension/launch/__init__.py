"""How a kernel's cells are made to ask before they run, decided once per launch.

`launch_plan` decides by the kernelspec's command; `bootstrap` hands our code to an IPython kernel;
`proxy_process` starts the proxy of any other kernel, for `proxied_provisioner`.
"""
