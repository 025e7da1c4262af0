"""The extension of the Jupyter server: REST API and stream, kernel provisioner, embedded scheduler.

Packages from top to bottom, each importing only those below it:

    extension    configuration, start and stop; `provisioner` launches kernels
    handlers     HTTP and WebSocket handlers
    headless     the services in nbconvert, papermill and other tools without a server
    services     what handlers and provisioner call
    requests     GPU requests on their way to the scheduler
    kernels      the state of each kernel of this server
    clients      connections to the scheduler, the node agent and Jupyter
    launch       what makes a kernel's cells ask, decided at its launch
"""
