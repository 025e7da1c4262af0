"""In the Jupyter server: REST and stream, the kernel provisioner, and the lines to scheduler and node agent.

    Jupyter calls         `extension` (start and end), `provisioner` (a kernel's launch), `handlers` (REST, stream; `tables` as CSV)
    the one behind them   `sharing`; with `directory` (what is known of each kernel), `standing` (how things stand), `history`
    to the scheduler      `line` (the client), `desk` (requests on their way), `request` and `presets` (what is asked), `naming`, `ghosts`
    to the agent          `machine` (the socket), `launches`, `questions` (what kernels ask), `relaunching` (what it orders), `unregistered`
    to pages              `telling` (what is new, for whom), `broadcast` (numbered frames)
    its neighbours        `peers` and `jupyter` (the server as seen from here), `local` (scheduler and agent inside this server)
"""
