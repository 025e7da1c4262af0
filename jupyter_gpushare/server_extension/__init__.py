"""In the Jupyter server: REST API and stream, the kernel provisioner, clients of scheduler and
agent.

Packages from top to bottom, each importing only those below it:

    extension    configuration, start and stop; `provisioner` launches kernels
    handlers     HTTP and WebSocket handlers
    services     what the handlers call
    requests     GPU requests on their way to the scheduler
    kernels      what is known of each kernel of this server
    clients      connections to the scheduler, the node agent and Jupyter itself
"""
